package server

import (
	"slices"
	"testing"
)

func TestPassiveTargetsAreAddresses(t *testing.T) {
	for target, want := range map[string]struct {
		address string
		secure  bool
	}{
		"ptcp:6642:192.0.2.1": {"192.0.2.1:6642", false}, "pssl:6642": {":6642", true}, "pssl:": {":6640", true},
		"pssl:0:[::1]": {"[::1]:0", true}, "punix:/run/db.sock": {"unix:/run/db.sock", false},
	} {
		if address, secure, err := passiveTarget(target); err != nil || address != want.address || secure != want.secure {
			t.Errorf("%s: %s, %v, %v; want %+v", target, address, secure, err, want)
		}
	}
	for _, target := range []string{"", "tcp:192.0.2.1:6642", "pssl:x", "ptcp:70000", "ssl:1"} {
		if address, _, err := passiveTarget(target); err == nil {
			t.Errorf("%q is listened at, at %s", target, address)
		}
	}
}

func TestSourcesSurviveTheCommasOfLists(t *testing.T) {
	got := JoinSources([]string{"127.0.0.1:6641", "db:D", "T", "c", "unix:/x", "db:D,T,d"})
	if want := []string{"127.0.0.1:6641", "db:D,T,c", "unix:/x", "db:D,T,d"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, short := range []string{"db:D", "db:"} {
		if _, err := (OVSDB{Listen: JoinSources([]string{short})}).sources(); err == nil {
			t.Errorf("%s is a column", short)
		}
	}
}
