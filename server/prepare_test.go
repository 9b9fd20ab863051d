package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
)

// A member that ran alone becomes the first of a cluster and keeps what it has.
func TestInitKeepsWhatIsThere(t *testing.T) {
	cfg := testConfig(t)
	cfg.SegmentBytes = 8 << 20
	s := open(t, cfg)
	if _, err := claim(t, clientOf(t, s), "kept", "h"); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Init(cluster.InitConfig{DataDir: cfg.DataDir}); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("while a server runs: %v", err)
	}
	if s.PeerAddr() != "" {
		t.Errorf("a member that is alone listens for others at %s", s.PeerAddr())
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	spares := logFiles(t, cfg, "spare-*")
	made, err := cluster.Init(cluster.InitConfig{DataDir: cfg.DataDir})
	if left := logFiles(t, cfg, "spare-*"); len(spares) == 0 || !maps.Equal(left, spares) {
		t.Errorf("spare files of the log were %v and are %v", spares, left)
	}
	if err != nil || !made.Existed || made.MemberID != cluster.FormatID(s.cluster.ID()) || made.CAFile != "" {
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

// logFiles returns the files of a member's log whose names match, with the SHA-256 of their
// content.
func logFiles(t *testing.T, cfg Config, pattern string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(cfg.DataDir, "log", pattern))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.Base(name)] = fmt.Sprintf("%d:%x", len(b), sha256.Sum256(b))
	}
	return found
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
	if _, err := cluster.Recover(cluster.RecoverConfig{DataDir: cfg.DataDir}); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("while it runs: %v", err)
	}
	for _, s := range members {
		crash(t, s)
	}
	before := logFiles(t, cfg, "*")
	for _, dry := range []bool{true, false} {
		got, err := cluster.Recover(cluster.RecoverConfig{DataDir: cfg.DataDir, DryRun: dry})
		if err != nil || got.MemberID != cluster.FormatID(last.cluster.ID()) || got.Name != "n3" || got.Leases != 1 || got.Index < res.Lease.Token ||
			!slices.Equal(got.Forgotten, []string{"n1", "n2"}) || got.Committed > got.Durable || got.LastTerm == 0 {
			t.Fatalf("dry %v: %+v, %v", dry, got, err)
		}
		if left := logFiles(t, cfg, "*"); maps.Equal(left, before) != dry {
			t.Errorf("dry %v: the log's files were %v and are %v", dry, before, left)
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

func TestLimitsChangeWhileRunning(t *testing.T) {
	cfg := testConfig(t)
	cfg.Settings = []Setting{{"max-connections", "16000", "default"}, {"join", "INC1.secret", "flag"}}
	s := open(t, cfg)
	if err := s.SetLimits(Limits{MaxConnections: -1}); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a limit that is none: %v", err)
	}
	if got := s.gate.Max(); got != DefaultMaxConnections {
		t.Errorf("a refused change made it %d", got)
	}
	if err := s.SetLimits(Limits{MaxConnections: 5}); err != nil {
		t.Fatal(err)
	}
	if got := s.gate.Max(); got != 5 {
		t.Errorf("%d connections", got)
	}
	shown, err := s.operator().Settings(testContext(t))
	if err != nil || shown.Settings[0].Value != "5" || shown.Settings[1].Value != "(a secret)" {
		t.Errorf("%v, %v", shown, err)
	}
}

func TestOVSDBObeysLimitsThatChangeWhileRunning(t *testing.T) {
	cfg := testConfig(t)
	cfg.OVSDB = OVSDB{Listen: []string{"unix:" + filepath.Join(t.TempDir(), "s")}, Probe: 7 * time.Second}
	s := open(t, cfg)
	want := s.ovsdb.door.Limits()
	if want.MaxConnections != doorConnections(DefaultMaxConnections) || want.Probe != cfg.OVSDB.Probe {
		t.Errorf("it begins with %+v", want)
	}
	if err := s.SetLimits(Limits{MaxConnections: 20_000}); err != nil {
		t.Fatal(err)
	}
	want.MaxConnections = doorConnections(20_000)
	if got := s.ovsdb.door.Limits(); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}
