package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/incumbent-dev/incumbent/linequeue"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// linesOf decodes a log: every line is one object.
func linesOf(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for in := bufio.NewScanner(strings.NewReader(text)); in.Scan(); {
		var m map[string]any
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			t.Fatalf("line %q: %v", in.Text(), err)
		}
		out = append(out, m)
	}
	return out
}

// The fields of a line are those that docs/operating.md names.
func TestALineSaysWhoDidWhat(t *testing.T) {
	r := Record{
		At: time.Date(2026, 11, 22, 10, 11, 12, 13e6, time.UTC), Door: "native", Address: "10.0.0.1:5", Principal: "agent:a", Action: "claim",
		Subject: "n:m:l", Outcome: Denied, Reason: Owner, Index: 7, Detail: "for a",
	}
	const want = `{"at":"2026-11-22T10:11:12.013Z","member":"n1","door":"native","address":"10.0.0.1:5","principal":"agent:a",` +
		`"action":"claim","subject":"n:m:l","outcome":"denied","reason":"owner","index":7,"detail":"for a"}` + "\n"
	if got := string(appendRecord(nil, "n1", &r)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	docs := read(t, "../docs/operating.md")
	for f := range reflect.TypeFor[line]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.Contains(docs, "| `"+name+"` |") {
			t.Errorf("docs/operating.md does not describe %q", name)
		}
	}
}

// Whatever a text contains, it stays within its line and moves no cursor.
func TestTextsAreEscapedAndCut(t *testing.T) {
	r := Record{Action: Login, Principal: "a\nb\x1b[2J\x00\xff\"", Subject: strings.Repeat("x", 5000)}
	got := appendRecord(nil, "n1", &r)
	if bytes.Count(got, []byte("\n")) != 1 || bytes.ContainsAny(got[:len(got)-1], "\x1b\x00\n") {
		t.Errorf("control characters in %q", got)
	}
	// A terminal takes U+009B for the beginning of a sequence; the others hide, or turn around, what follows.
	const odd = "a\u009b2J\u202eb\u200bc\u2028d\x7f\U000e0041"
	if got := appendRecord(nil, "n1", &Record{Subject: odd}); bytes.ContainsFunc(got[:len(got)-1], func(r rune) bool { return r < ' ' || r > '~' }) || linesOf(t, string(got))[0]["subject"] != odd {
		t.Errorf("got %q", got)
	}
	if m := linesOf(t, string(got))[0]; len(m["subject"].(string)) != maxText || m["principal"] != "a\nb\x1b[2J\x00\ufffd\"" {
		t.Errorf("got %q", got)
	}
}

func TestFilesAreRotated(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	sink, err := OpenFile(name, 1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := sink.Write(appendRecord(nil, "n1", &Record{Action: fmt.Sprint("a", i)})); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name + ".3"); err == nil {
		t.Error("more files stay than are to")
	}
	last := 49
	for _, of := range []string{name, name + ".1", name + ".2"} {
		text := read(t, of)
		if len(text) > 1000 {
			t.Errorf("%s has %d bytes", of, len(text))
		}
		lines := linesOf(t, text)
		for i := len(lines) - 1; i >= 0; i-- {
			if lines[i]["action"] != fmt.Sprint("a", last) {
				t.Fatalf("%s: %v, want action a%d", of, lines[i], last)
			}
			last--
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("others may read it: %v %v", info, err)
	}
}

// A line that a killed process has left half written does not spoil the next one.
func TestATornLineIsEnded(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(name, []byte(`{"at":"20`), 0o600); err != nil {
		t.Fatal(err)
	}
	sink, err := OpenFile(name, 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sink.Write([]byte("{}\n")), sink.Write([]byte("{}\n")), sink.Close()); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, name), "{\"at\":\"20\n{}\n{}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whoever rotates files moves the old one away and has the log go on in a new one.
func TestReopen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "audit.log")
		sink, err := OpenFile(name, 1<<20, 1)
		if err != nil {
			t.Fatal(err)
		}
		l := New("n1", sink, time.Now, quiet())
		l.Write(Record{Action: "one"})
		synctest.Wait()
		if err := os.Rename(name, name+".moved"); err != nil {
			t.Fatal(err)
		}
		l.Reopen()
		synctest.Wait()
		l.Write(Record{Action: "two"})
		l.Close(time.Minute)
		if got := linesOf(t, read(t, name)); len(got) != 1 || got[0]["action"] != "two" {
			t.Errorf("the new file has %v", got)
		}
		if got := linesOf(t, read(t, name+".moved")); len(got) != 1 || got[0]["action"] != "one" {
			t.Errorf("the old file has %v", got)
		}
	})
}

// slow is a sink that takes lines when it is let, or fails.
type slow struct {
	gate chan struct{}

	mu    sync.Mutex
	fails bool
	text  []byte
	syncs int
}

func (s *slow) Write(lines []byte) error {
	<-s.gate
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		return errors.New("no space")
	}
	s.text = append(s.text, lines...)
	return nil
}

func (s *slow) Sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncs++
	return nil
}

func (s *slow) Reopen() error { return nil }
func (s *slow) Close() error  { return nil }

func (s *slow) fail(fails bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = fails
}

// A disk that stands still holds nobody up: what finds no room is counted, and a
// line says how much it was.
func TestWhatIsLostIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &slow{gate: make(chan struct{})}
		l := New("n1", sink, time.Now, quiet())
		l.Write(Record{Action: "first"})
		synctest.Wait() // the writer has it, and stands still
		const more = 17
		for range maxWaiting + more {
			l.Write(Record{Action: "x"})
		}
		if got := l.Lost(); got != more {
			t.Errorf("%d lost, want %d", got, more)
		}
		close(sink.gate)
		l.Close(time.Minute)
		lines := linesOf(t, string(sink.text))
		if last := lines[len(lines)-1]; len(lines) != maxWaiting+2 || last["action"] != lostAction || last["lost"] != float64(more) {
			t.Errorf("%d lines, the last %v", len(lines), last)
		}
		l.Write(Record{Action: "late"})
		if got := l.Lost(); got != more+1 {
			t.Errorf("%d lost, want one more", got)
		}
	})
}

// What could not be written is said as soon as writing works again, without that
// anything else happens.
func TestAFailedWriteIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &slow{gate: make(chan struct{}), fails: true}
		close(sink.gate)
		l := New("n1", sink, time.Now, quiet())
		l.Write(Record{Action: "a"})
		l.Write(Record{Action: "b"})
		synctest.Wait()
		time.Sleep(3 * linequeue.Every)
		if got := l.Lost(); got != 2 {
			t.Errorf("%d lost, want 2", got)
		}
		sink.fail(false)
		time.Sleep(2 * linequeue.Every)
		synctest.Wait()
		l.Write(Record{Action: "c"})
		l.Close(time.Minute)
		lines := linesOf(t, string(sink.text))
		if len(lines) != 2 || lines[0]["lost"] != 2.0 || lines[1]["action"] != "c" {
			t.Errorf("got %v", lines)
		}
		if sink.syncs == 0 {
			t.Error("nothing was synced")
		}
	})
}

// A subject of many names has the first ones, and says how many there are besides.
func TestNames(t *testing.T) {
	var n Names
	if !n.None() || n.String() != "" {
		t.Errorf("of none: %q", n.String())
	}
	for _, name := range []string{"a", "b", "b", "a"} {
		n.Add(name)
	}
	if got := n.String(); n.None() || got != "a, b, a" {
		t.Errorf("of some: %q", got)
	}
	for i := range 10_000 {
		n.AddOf(func() string { return fmt.Sprint("name ", i) })
	}
	n.Add("z") // which would fit
	got := n.String()
	if listed := strings.Count(got, ","); len(got) > maxNames+len(" and 10000 more") || strings.Contains(got, "z") || !strings.HasPrefix(got, "a, b, a, name 0, ") || !strings.HasSuffix(got, fmt.Sprintf(" and %d more", 10_003-listed)) {
		t.Errorf("of many: %q", got)
	}
	var one Names
	if one.Add(strings.Repeat("x", 5000)); len(one.String()) != maxText {
		t.Errorf("of a long one: %d bytes", len(one.String()))
	}
}

// What waits is no longer than what is written, whatever it was cut from.
func TestWhatWaitsIsBounded(t *testing.T) {
	const text = "x"
	if got := Bounded(text); got != text {
		t.Errorf("of a short one: %q", got)
	}
	long := strings.Repeat("x", 5000)
	if got := Bounded(long); len(got) != maxText || unsafe.StringData(got) == unsafe.StringData(long) {
		t.Errorf("of a long one: %d bytes", len(got))
	}
}
