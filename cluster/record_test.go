package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

func TestRecordsAreReadBackOrRefused(t *testing.T) {
	dir := t.TempDir()
	if r, err := ReadRecord(dir); r != nil || err != nil {
		t.Errorf("none: %v, %v", r, err)
	}
	want := &Record{
		Stage: member, Cluster: strings.Repeat("ab", 16), ID: FormatID(7), Name: "n1", Clustered: true, Secret: make([]byte, 32),
		Members: []KnownMember{{ID: FormatID(9), Name: "n2", Peer: "127.0.0.1:1"}},
	}
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadRecord(dir); err != nil || got.ID != want.ID || !slices.Equal(got.Members, want.Members) {
		t.Errorf("%+v, %v", got, err)
	}
	info, err := os.Stat(filepath.Join(dir, recordFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the secret: %v, %v", info.Mode(), err)
	}
	// Its log is gone, so it may have forgotten how it voted: what is beside it is none.
	if err := os.Mkdir(filepath.Join(dir, "log"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lock", "spare-1"} {
		if err := os.WriteFile(filepath.Join(dir, "log", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Identify(t.Context(), JoinConfig{DataDir: dir, Name: "n1"}); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("without its log: %v", err)
	}
	for name, tt := range map[string]struct {
		change func(*Record)
		want   incumbent.Kind
	}{
		"no id":         {func(r *Record) { r.ID = "" }, incumbent.Corrupt},
		"half a secret": {func(r *Record) { r.Secret = r.Secret[:16] }, incumbent.Corrupt},
		"no stage":      {func(r *Record) { r.Stage = "" }, incumbent.Corrupt},
	} {
		r := *want
		tt.change(&r)
		if err := r.Write(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadRecord(dir); incumbent.KindOf(err) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRecord(dir); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a later version: %v", err)
	}
}
