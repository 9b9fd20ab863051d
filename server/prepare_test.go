package server

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/vfs"
)

// A member that ran alone becomes the first of a cluster and keeps what it has.
func TestInitKeepsWhatIsThere(t *testing.T) {
	cfg := testConfig(t)
	s := open(t, cfg)
	if _, err := claim(t, clientOf(t, s), "kept", "h"); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(InitConfig{DataDir: cfg.DataDir}); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("while a server runs: %v", err)
	}
	if s.PeerAddr() != "" {
		t.Errorf("a member that is alone listens for others at %s", s.PeerAddr())
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	made, err := Init(InitConfig{DataDir: cfg.DataDir})
	if err != nil || !made.Existed || made.MemberID != idText(s.id) || made.CAFile != "" {
		t.Fatalf("%+v, %v", made, err)
	}
	cfg.PeerListen = "127.0.0.1:0" // the default port may be taken
	cfg.Name = ""
	first := open(t, cfg)
	if first.cfg.Name != "n1" {
		t.Errorf("the member is called %q now", first.cfg.Name)
	}
	if _, err := claim(t, clientOf(t, first), "kept", "other"); incumbent.KindOf(err) != incumbent.Held {
		t.Errorf("what was held: %v", err)
	}
	join(t, first, memberConfig(t, "n2"))
}

// The last member of three goes on alone with what it has, above any index that
// the others may have issued.
func TestRecover(t *testing.T) {
	members := trio(t)
	res, err := claim(t, clientOf(t, members[0]), "kept", "h")
	if err != nil {
		t.Fatal(err)
	}
	last := members[2]
	until(t, "the last one has it", func() bool { return uint64(last.engine.View().Index()) >= res.Lease.Token })
	cfg := last.cfg
	if _, err := Recover(RecoverConfig{DataDir: cfg.DataDir}); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("while it runs: %v", err)
	}
	for _, s := range members {
		crash(t, s)
	}
	for _, dry := range []bool{true, false} {
		got, err := Recover(RecoverConfig{DataDir: cfg.DataDir, DryRun: dry})
		if err != nil || got.MemberID != idText(last.id) || got.Name != "n3" || got.Leases != 1 || got.Index < res.Lease.Token ||
			!slices.Equal(got.Forgotten, []string{"n1", "n2"}) || got.Committed > got.Durable || got.LastTerm == 0 {
			t.Fatalf("dry %v: %+v, %v", dry, got, err)
		}
	}
	cfg.Listen, cfg.PeerListen, cfg.JoinToken = "127.0.0.1:0", "127.0.0.1:0", ""
	alone := open(t, cfg)
	if err := extend(t, alone, "kept", "h", res.Lease.Token); err != nil {
		t.Error(err)
	}
	next, err := claim(t, clientOf(t, alone), "new", "h")
	if err != nil || next.Lease.Token < uint64(core.NextEpoch(incumbent.Index(res.Lease.Token))) {
		t.Errorf("a new token %d after %d, %v", next.GetLease().GetToken(), res.Lease.Token, err)
	}
	until(t, "it is alone", func() bool { return slices.Equal(voting(alone), []string{"n3"}) })
	join(t, alone, memberConfig(t, "n1"))
}

func TestRecordsAreReadBackOrRefused(t *testing.T) {
	dir, fsys := t.TempDir(), vfs.OS{}
	if r, err := readRecord(fsys, dir); r != nil || err != nil {
		t.Errorf("none: %v, %v", r, err)
	}
	want := &record{
		Stage: member, Cluster: strings.Repeat("ab", 16), ID: idText(7), Name: "n1", Clustered: true, Secret: make([]byte, 32),
		Members: []knownMember{{ID: idText(9), Name: "n2", Peer: "127.0.0.1:1"}},
	}
	if err := want.write(fsys, dir); err != nil {
		t.Fatal(err)
	}
	if got, err := readRecord(fsys, dir); err != nil || got.ID != want.ID || !slices.Equal(got.Members, want.Members) {
		t.Errorf("%+v, %v", got, err)
	}
	info, err := os.Stat(filepath.Join(dir, recordFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the secret: %v, %v", info.Mode(), err)
	}
	// Its log is gone, so it may have forgotten how it voted.
	if _, err := Open(Config{DataDir: dir, Name: "n1", Listen: "127.0.0.1:0", PeerListen: "127.0.0.1:0"}); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("without its log: %v", err)
	}
	for name, tt := range map[string]struct {
		change func(*record)
		want   incumbent.Kind
	}{
		"no id":         {func(r *record) { r.ID = "" }, incumbent.Corrupt},
		"half a secret": {func(r *record) { r.Secret = r.Secret[:16] }, incumbent.Corrupt},
		"no stage":      {func(r *record) { r.Stage = "" }, incumbent.Corrupt},
	} {
		r := *want
		tt.change(&r)
		if err := r.write(fsys, dir); err != nil {
			t.Fatal(err)
		}
		if _, err := readRecord(fsys, dir); incumbent.KindOf(err) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecord(fsys, dir); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a later version: %v", err)
	}
}

func TestLimitsChangeWhileRunning(t *testing.T) {
	cfg := testConfig(t)
	cfg.Settings = []Setting{{"max-connections", "16000", "default"}, {"join", "INC1.secret", "flag"}}
	s := open(t, cfg)
	if err := s.SetLimits(Limits{MaxConnections: -1}); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a limit that is none: %v", err)
	}
	if got := s.gate.max.Load(); got != DefaultMaxConnections {
		t.Errorf("a refused change made it %d", got)
	}
	if err := s.SetLimits(Limits{MaxConnections: 5}); err != nil {
		t.Fatal(err)
	}
	if got := s.gate.max.Load(); got != 5 {
		t.Errorf("%d connections", got)
	}
	shown, err := operator{s}.Settings(testContext(t))
	if err != nil || shown.Settings[0].Value != "5" || shown.Settings[1].Value != "(a secret)" {
		t.Errorf("%v, %v", shown, err)
	}
}
