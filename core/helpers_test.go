package core

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

// fatal is what testing and rapid have in common.
type fatal interface{ Fatalf(string, ...any) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func asError(e *incumbent.Error) error {
	if e == nil {
		return nil
	}
	return e
}

func sessionID(s string) incumbent.SessionID {
	var id incumbent.SessionID
	copy(id[:], s)
	return id
}

// restart returns the state as a snapshot of it gives it.
func restart(t fatal, s *State) *State {
	var buf bytes.Buffer
	if err := s.View().WriteSnapshot(&buf); err != nil {
		t.Fatalf("writing a snapshot: %v", err)
	}
	n, err := Restore(&buf)
	if err != nil {
		t.Fatalf("restoring a snapshot: %v", err)
	}
	if n.View().Hash() != s.View().Hash() {
		t.Fatalf("the restored state has another hash")
	}
	n.limits = s.limits
	return n
}

func snapshotBytes(t fatal, s *State) []byte {
	var b bytes.Buffer
	if err := s.View().WriteSnapshot(&b); err != nil {
		t.Fatalf("%v", err)
	}
	return b.Bytes()
}

func formatMember(m *Member) string {
	s := fmt.Sprintf("member %d %s since=%d schema=%d", m.ID, m.Name, m.Since, m.Schema)
	for _, f := range []struct{ what, text string }{{"peer", m.PeerAddress}, {"url", m.ClientURL}, {"version", m.Version}} {
		if f.text != "" {
			s += fmt.Sprintf(" %s=%s", f.what, f.text)
		}
	}
	if m.Learner {
		s += " learner"
	}
	return s
}

func drawMember(t *rapid.T) Command {
	return PutMemberCommand{Member{
		ID: rapid.Uint64Range(0, 4).Draw(t, "member"), Name: rapid.SampledFrom([]string{"m1", "m2", "m3"}).Draw(t, "member name"),
		PeerAddress: rapid.SampledFrom([]string{"", "host:1"}).Draw(t, "address"), Learner: rapid.Bool().Draw(t, "learner"),
		Schema: rapid.Uint32Range(1, 4).Draw(t, "schema"),
	}}
}

// fullState has one of everything that is core's own.
func fullState(t fatal) *State {
	s := New()
	x, y := sessionID("x"), sessionID("y")
	for i, c := range []Command{
		OpenSessionCommand{ID: x, TTL: time.Minute},
		OpenSessionCommand{ID: y},
		CloseSessionCommand{ID: sessionID("z")},
		PutMemberCommand{Member{ID: 7, Name: "m7", PeerAddress: "host:1", ClientURL: "https://host:2", Schema: 2, Version: "v1"}},
		PutMemberCommand{Member{ID: 5, Name: "m5", Schema: 3, Learner: true}},
		RemoveMemberCommand{ID: 9},
		RemoveMemberCommand{ID: 8},
	} {
		meta := Meta{Origin: Origin{At: time.UnixMilli(int64(i)), Door: "native", Address: "127.0.0.1:1", Principal: "p"}}
		if i%2 == 0 {
			meta.KeyID = []byte{0xff, byte(i)}
		}
		s.Apply([][]byte{c.Encode(meta)}, make([]Result, 1))
	}
	if err := s.check(); err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

// What an encoded command says of times and texts never makes it fail.
func TestEncodeCutsOrigin(t *testing.T) {
	for _, o := range []Origin{
		{At: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)},
		{At: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Door: "\xff\xfe", Address: string(bytes.Repeat([]byte("é"), MaxOriginBytes))},
	} {
		var c command
		if err := c.decode((CheckpointCommand{}).Encode(Meta{Origin: o}), MaxFamilyBytes); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestRestoreRefusesSchema(t *testing.T) {
	var e encoder
	m := e.Begin(1)
	e.Uint(1, SchemaVersion+1)
	e.End(m)
	_, err := Restore(bytes.NewReader(append([]byte{byte(len(e.B))}, e.B...)))
	if incumbent.KindOf(err) != incumbent.Invalid {
		t.Fatal(err)
	}
	if want := "invalid: snapshot has schema 15, this member reads 9 to 14"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

// A snapshot of before leases were a family says so, and is not taken for a damaged one.
func TestRestoreRefusesSnapshotsOfBefore(t *testing.T) {
	b, err := os.ReadFile("testdata/snapshots/schema1")
	must(t, err)
	_, err = Restore(bytes.NewReader(b))
	if want := "invalid: snapshot has schema 1, this member reads 9 to 14"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
