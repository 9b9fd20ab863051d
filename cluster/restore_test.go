package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// source is a state that changes as a cluster's does.
type source struct {
	t *testing.T
	*core.State
}

func newSource(t *testing.T) *source {
	t.Helper()
	return &source{t, engine.NewState()}
}

func (s *source) do(meta core.Meta, cmds ...core.Command) core.Result {
	s.t.Helper()
	var res core.Result
	for _, c := range cmds {
		results := make([]core.Result, 1)
		s.Apply([][]byte{c.Encode(meta)}, results)
		if res = results[0]; res.Err != nil {
			s.t.Fatalf("%+v: %v", c, res.Err)
		}
	}
	return res
}

func (s *source) backup() []byte {
	s.t.Helper()
	var b bytes.Buffer
	if err := backup.Write(s.t.Context(), &b, s.View(), backup.Info{Cluster: strings.Repeat("0", 31) + "1", Member: "n1", At: time.Unix(0, 0)}); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

func lease1(namespace, name string) incumbent.Name {
	return incumbent.Name{Namespace: namespace, Model: "default", Lease: name}
}

func claimOf(name incumbent.Name, holder string) leases.ClaimCommand {
	return leases.ClaimCommand{Name: name, Holder: holder, TTL: time.Minute}
}

func memberCommand(id uint64, name string) core.Command {
	return core.PutMemberCommand{Member: core.Member{ID: id, Name: name, Schema: core.SchemaVersion}}
}

// restored restores a backup into an empty directory.
func restored(t *testing.T, b []byte, cfg RestoreConfig) (Restored, string) {
	t.Helper()
	cfg.DataDir, cfg.Name = filepath.Join(t.TempDir(), "data"), "new"
	got, err := Restore(cfg, bytes.NewReader(b), "f")
	if err != nil {
		t.Fatal(err)
	}
	return got, cfg.DataDir
}

// run runs the group of a data directory until the test ends.
func run(t *testing.T, dir string) *engine.Engine {
	t.Helper()
	e, err := engine.New(engine.Config{})
	if err == nil {
		err = e.Open(node.Config{FS: vfs.OS{}, Dir: dir, Schema: core.SchemaVersion, SegmentBytes: node.MinSegmentBytes})
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := e.Node().WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e
}

// view reads the state of a data directory.
func viewOf(t *testing.T, dir string) (v *core.View, st node.Status) {
	t.Helper()
	err := offline(dir, slog.New(slog.DiscardHandler), func(n *node.Node, found *core.View) error {
		v, st = found, n.Status()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return v, st
}

// Everything that the source grants and answers behind the backup, through all the
// recoveries that RestoreIndex allows for, stays below what the restored cluster
// grants. What was held is held under the same tokens.
func TestG03_G14_ARestoredClusterGoesOnAboveItsSource(t *testing.T) {
	s := newSource(t)
	s.do(core.Meta{}, memberCommand(1, "n1"), memberCommand(2, "n2"), claimOf(lease1("default", "a"), "ann"))
	held := leases.Of(s.View()).Lease(lease1("default", "a")).Token
	b := s.backup()
	for range 8 {
		s.do(core.Meta{}, claimOf(lease1("default", "b"), "bob"), leases.ReleaseCommand{Name: lease1("default", "b"), Holder: "bob"}, core.EpochCommand{})
	}
	last := leases.AnswerOf(s.do(core.Meta{}, claimOf(lease1("default", "b"), "bob"))).Lease.Token

	got, dir := restored(t, b, RestoreConfig{})
	if got.Index <= s.Index() || !slices.Equal(got.Forgotten, []string{"n1", "n2"}) {
		t.Errorf("goes on from %v without %v; the source is at %v", got.Index, got.Forgotten, s.Index())
	}
	e := run(t, dir)
	v := e.View()
	if a := leases.Of(v).Lease(lease1("default", "a")); a.Token != held || a.Holder != "ann" {
		t.Errorf("a is %v, token %v: want ann, %v", a.Holder, a.Token, held)
	}
	if !v.MemberGone(1) || !v.MemberGone(2) || len(v.Members()) > 0 {
		t.Errorf("members %v", v.Members())
	}
	res, err := e.Leases().Await(t.Context(), lease.Call{}, claimOf(lease1("default", "b"), "eve"))
	if err != nil || leases.AnswerOf(res).Lease.Token <= last {
		t.Errorf("granted under %v, the source granted %v: %v", leases.AnswerOf(res).Lease.Token, last, err)
	}
	if uint64(got.Index) >= 1<<53 {
		t.Errorf("index %v is not exact in every JSON reader", got.Index)
	}
}

// The same backup restored again, above what is known of the first cluster.
func TestG03_G14_ARestoreAboveAnother(t *testing.T) {
	s := newSource(t)
	s.do(core.Meta{}, claimOf(lease1("default", "a"), "ann"))
	b := s.backup()
	first, dir := restored(t, b, RestoreConfig{})
	res, err := run(t, dir).Leases().Await(t.Context(), lease.Call{}, claimOf(lease1("default", "b"), "bob"))
	if err != nil {
		t.Fatal(err)
	}
	again, _ := restored(t, b, RestoreConfig{})
	above, _ := restored(t, b, RestoreConfig{Above: incumbent.Index(leases.AnswerOf(res).Lease.Token)})
	if again.Index != first.Index || above.Index <= incumbent.Index(leases.AnswerOf(res).Lease.Token) {
		t.Errorf("first %v, again %v, above %v: %v", first.Index, again.Index, leases.AnswerOf(res).Lease.Token, above.Index)
	}
	if first.ClusterID == again.ClusterID || first.MemberID == again.MemberID {
		t.Errorf("two restored clusters have the same ids: %+v, %+v", first, again)
	}
}

// What an idempotency key did before the backup is answered as before; what came
// behind it happens when it is tried again.
func TestG25_ResultsOfKeysAreRestored(t *testing.T) {
	s := newSource(t)
	key := core.Meta{KeyID: []byte("before")}
	granted := leases.AnswerOf(s.do(key, claimOf(lease1("default", "a"), "ann"))).Lease.Token
	s.do(core.Meta{}, leases.ReleaseCommand{Name: lease1("default", "a"), Holder: "ann"})
	b := s.backup()
	behind := lease.Call{KeyID: []byte("behind"), KeyBase: s.Index()}
	s.do(core.Meta{KeyID: behind.KeyID, KeyBase: behind.KeyBase}, claimOf(lease1("default", "b"), "bob"))

	got, dir := restored(t, b, RestoreConfig{})
	e := run(t, dir)
	res, err := e.Leases().Await(t.Context(), lease.Call{KeyID: key.KeyID}, claimOf(lease1("default", "a"), "ann"))
	if err != nil || !res.Replayed || leases.AnswerOf(res).Lease.Token != granted {
		t.Errorf("the key before the backup: %+v, %v", res, err)
	}
	res, err = e.Leases().Await(t.Context(), behind, claimOf(lease1("default", "b"), "bob"))
	if err != nil || res.Replayed || incumbent.Index(leases.AnswerOf(res).Lease.Token) <= got.Index {
		t.Errorf("the key behind the backup: %+v, %v", res, err)
	}
}

func TestRestoreOfOneNamespace(t *testing.T) {
	s := newSource(t)
	owner, waiter, locker, other := incumbent.SessionID{1}, incumbent.SessionID{2}, incumbent.SessionID{3}, incumbent.SessionID{4}
	for _, id := range []incumbent.SessionID{owner, waiter, locker, other} {
		s.do(core.Meta{}, core.OpenSessionCommand{ID: id, TTL: time.Minute})
	}
	for _, ns := range []string{"billing", "billing2", "a"} {
		own := leases.ClaimCommand{Name: lease1(ns, "owned"), Holder: "ann", Session: owner}
		s.do(core.Meta{KeyID: []byte(ns)}, own)
		s.do(core.Meta{}, claimOf(lease1(ns, "alone"), "bob"), kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: ns, Name: "k"}, Value: []byte(ns)},
			kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: ns, Name: "gone"}}, kv.Command{Verb: kv.Remove, Key: kv.Key{Namespace: ns, Name: "gone"}})
	}
	s.do(core.Meta{}, leases.ClaimCommand{Name: lease1("billing", "owned"), Holder: "wim", Session: waiter, Wait: true},
		leases.ClaimCommand{Name: lease1("a", "more"), Holder: "wim", Session: other},
		kv.Command{Verb: kv.Acquire, Key: kv.Key{Namespace: "billing", Name: "locked"}, Session: locker},
		kv.Command{Verb: kv.Acquire, Key: kv.Key{Namespace: "a", Name: "locked"}, Session: other})
	b := s.backup()
	token := leases.Of(s.View()).Lease(lease1("billing", "owned")).Token
	_, dir := restored(t, b, RestoreConfig{Namespace: "billing"})
	v, _ := viewOf(t, dir)
	var held, keys []string
	leases.Of(v).All(func(l *leases.Lease) bool {
		held = append(held, fmt.Sprintf("%s/%s %s", l.Name.Namespace, l.Name.Lease, l.Holder))
		return true
	})
	for _, ns := range []string{"a", "billing", "billing2"} {
		kv.Of(v).Ascend(kv.Key{Namespace: ns}, kv.Key{}, func(e *kv.Entry) bool {
			keys = append(keys, e.Namespace+"/"+e.Name)
			return true
		})
	}
	if diff := cmp.Diff([]string{"billing/alone bob", "billing/owned ann"}, held); diff != "" {
		t.Errorf("leases (- wanted):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"billing/k", "billing/locked"}, keys); diff != "" {
		t.Errorf("keys (- wanted):\n%s", diff)
	}
	if l := leases.Of(v).Lease(lease1("billing", "owned")); l.Token != token || l.Waiting != 1 {
		t.Errorf("owned: token %v, %d wait; want %v and one", l.Token, l.Waiting, token)
	}
	for id, want := range map[incumbent.SessionID]bool{owner: true, waiter: true, locker: true, other: false} {
		if got := v.Session(id) != nil; got != want {
			t.Errorf("session %v: %v, want %v", id, got, want)
		}
	}
	if v.KeptCount() != 0 || v.KeysFloor() != s.Index() {
		t.Errorf("%d results, floor %v; want none, %v", v.KeptCount(), v.KeysFloor(), s.Index())
	}
	_, err := Restore(RestoreConfig{DataDir: filepath.Join(t.TempDir(), "x"), Name: "n", Namespace: "bling"}, bytes.NewReader(b), "f")
	if incumbent.KindOf(err) != incumbent.NotFound {
		t.Errorf("a namespace of which there is nothing: %v", err)
	}
}

// A damaged backup leaves nothing behind, and a directory that holds a member stays
// what it was.
func TestWhatIsNotRestored(t *testing.T) {
	s := newSource(t)
	s.do(core.Meta{}, claimOf(lease1("default", "a"), "ann"))
	b := s.backup()
	dir := filepath.Join(t.TempDir(), "data")
	damaged := slices.Clone(b)
	damaged[len(b)/2] ^= 1
	for name, from := range map[string][]byte{"damaged": damaged, "cut": b[:len(b)-1], "empty": nil} {
		if _, err := Restore(RestoreConfig{DataDir: dir, Name: "n"}, bytes.NewReader(from), "f"); incumbent.KindOf(err) != incumbent.Corrupt {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a damaged backup made a directory")
	}
	if _, err := Restore(RestoreConfig{DataDir: dir, Name: "n", Above: core.MaxIndex}, bytes.NewReader(b), "f"); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("above every index: %v", err)
	}
	got, dir := restored(t, b, RestoreConfig{})
	if _, err := Restore(RestoreConfig{DataDir: dir, Name: "n"}, bytes.NewReader(b), "f"); incumbent.KindOf(err) != incumbent.Exists {
		t.Errorf("over a member: %v", err)
	}
	if _, st := viewOf(t, dir); FormatID(st.Member) != got.MemberID {
		t.Errorf("member %x, want %s", st.Member, got.MemberID)
	}
}

// A restore that was cut short anywhere is begun again and comes to the same end;
// until then nothing starts on the directory.
func TestARestoreThatWasCutShort(t *testing.T) {
	s := newSource(t)
	s.do(core.Meta{}, claimOf(lease1("default", "a"), "ann"))
	b := s.backup()
	_, dir := restored(t, b, RestoreConfig{})
	// As after a crash before the last step: the log is there, the record says that
	// it was not finished. Of the log any part may be missing.
	for _, part := range []string{"", "snap", "log"} {
		begun := &Record{Stage: restoring, ID: FormatID(7), Name: "n"}
		if err := begun.Write(dir); err != nil {
			t.Fatal(err)
		}
		if part != "" {
			if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Identify(t.Context(), JoinConfig{DataDir: dir, Name: "n"}); incumbent.KindOf(err) != incumbent.Conflict {
			t.Errorf("without %q: a server starts: %v", part, err)
		}
		if _, err := Init(InitConfig{DataDir: dir, Name: "n"}); incumbent.KindOf(err) != incumbent.Conflict {
			t.Errorf("without %q: init: %v", part, err)
		}
		if _, err := Recover(RecoverConfig{DataDir: dir}); incumbent.KindOf(err) != incumbent.Conflict {
			t.Errorf("without %q: recover: %v", part, err)
		}
		again, err := Restore(RestoreConfig{DataDir: dir, Name: "n"}, bytes.NewReader(b), "f")
		if err != nil {
			t.Fatalf("without %q: %v", part, err)
		}
		v, st := viewOf(t, dir)
		if leases.Of(v).Lease(lease1("default", "a")).Holder != "ann" || FormatID(st.Member) != again.MemberID {
			t.Errorf("without %q: another state or member", part)
		}
	}
}
