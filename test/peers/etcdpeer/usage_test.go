//go:build linux

package etcdpeer

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const stat = "812 (a b) c) S 1 812 812 0 -1 4194560 900 0 3 0 250 75 0 0 20 0 9 0 4711 1300000 2048 18446744073709551615\n"
	got, err := parseStat(stat)
	if err != nil {
		t.Fatal(err)
	}
	want := Usage{CPU: 3250 * time.Millisecond, RSSBytes: 2048 * int64(os.Getpagesize())}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseStatRefuses(t *testing.T) {
	for _, text := range []string{"", "812 (etcd", "812 (etcd) S 1 2 3", "1 (x) S 1 1 1 0 -1 0 0 0 0 0 no 5 0 0 20 0 9 0 4711 13 20 18"} {
		if got, err := parseStat(text); err == nil {
			t.Errorf("%q gives %+v", text, got)
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	got, err := UsageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got.RSSBytes < 1<<20 {
		t.Errorf("%d bytes resident", got.RSSBytes)
	}
	if _, err := UsageOf(os.Getpid(), -1); err == nil {
		t.Error("usage of a process that does not exist")
	}
}
