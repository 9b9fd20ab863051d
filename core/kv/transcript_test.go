package kv

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// TestTranscripts runs the files below testdata. They read as the protocol of
// keys and values.
//
//	apply            one batch: a command a line, see parse
//	list PREFIX      the entries, and the index of the list; after=
//	state            counts, locks and delays
//	limits …         makes limits smaller: per-session= locks= deleted= tombstones= bytes=
//	restart          goes on from a snapshot, which must give the same state
//
// A key is of namespace n. A session's id is its text, filled up with zeros.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		f := ample()
		s := core.New(f)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "apply":
				batch(t, s, strings.Split(d.Input, "\n"), &out)
			case "list":
				list(t, Of(s.View()), d, &out)
			case "state":
				state(Of(s.View()), &out)
			case "limits":
				f.set(t, d.CmdArgs)
			case "restart":
				s = reload(t, s, f)
			default:
				d.Fatalf(t, "unknown directive %q", d.Cmd)
			}
			if err := s.Check(); err != nil {
				d.Fatalf(t, "broken invariant: %v", err)
			}
			return out.String()
		})
	})
}

func (f *smallFamily) set(t *testing.T, args []datadriven.CmdArg) {
	for _, a := range args {
		n, err := strconv.Atoi(a.Vals[0])
		if err != nil {
			t.Fatal(err)
		}
		if a.Key == "bytes" {
			f.terms.KeyBytes = int64(n)
			continue
		}
		*map[string]*int{
			"per-session": &f.limits.perSession, "locks": &f.limits.locks, "deleted": &f.limits.deleted, "tombstones": &f.limits.tombstones,
		}[a.Key] = n
	}
	f.tables.limits = f.limits
}

func list(t *testing.T, v *View, d *datadriven.TestData, out *strings.Builder) {
	prefix, after := "", Key{}
	for _, a := range d.CmdArgs {
		if a.Key == "after" {
			after = key(a.Vals[0])
		} else {
			prefix = a.Key
		}
	}
	v.Ascend(key(prefix), after, func(e *Entry) bool {
		out.WriteString(entryText(e) + "\n")
		return true
	})
	fmt.Fprintf(out, "index=%d deleted=%d\n", listIndex(v, key(prefix)), v.Deleted(key(prefix), func(Key) bool { return true }, func() bool { return true }))
}

func state(v *View, out *strings.Builder) {
	fmt.Fprintf(out, "keys=%d bytes=%d locks=%d tombstones=%d floor=%d\n", v.Len(), v.Bytes(), v.Locks(), v.tombstones.Len(), v.floor)
	v.Delays(func(d *Delay) bool {
		fmt.Fprintf(out, "delay of %s: %v since %d\n", d.Name, d.For, d.Since)
		return true
	})
}

func batch(t *testing.T, s *core.State, lines []string, out *strings.Builder) {
	cmds := make([]core.Command, len(lines))
	for i, line := range lines {
		cmds[i] = parse(t, line)
	}
	results, changes := apply(t, s, cmds...)
	for i, r := range results {
		fmt.Fprintf(out, "%d %s\n", r.Index, resultText(r))
		for len(changes) > 0 && (i == len(results)-1 || changes[0].Index < results[i+1].Index) {
			out.WriteString(changeText(&changes[0]))
			changes = changes[1:]
		}
	}
}

func resultText(r core.Result) string {
	text := "ok"
	if r.Err != nil {
		text = r.Err.Error()
	}
	switch x := r.Record.(type) {
	case *Entry:
		text += " | " + entryText(x)
	case int:
		text += fmt.Sprintf(" | %d keys", x)
	}
	return text
}

func changeText(c *core.Change) string {
	if c.Family == nil {
		return fmt.Sprintf("  %d %v\n", c.Index, c.What)
	}
	if c.Family.Before == c.Family.After {
		return fmt.Sprintf("  %d the delay of %s is over\n", c.Index, c.Family.Topic.Name)
	}
	before, _ := c.Family.Before.(*Entry)
	after, _ := c.Family.After.(*Entry)
	return fmt.Sprintf("  %d %s -> %s\n", c.Index, entryText(before), entryText(after))
}

func entryText(e *Entry) string {
	if e == nil {
		return "nothing"
	}
	s := fmt.Sprintf("%s=%s created=%d modified=%d", e.Name, e.Value, e.Created, e.Modified)
	if e.Flags != 0 {
		s += fmt.Sprintf(" flags=%d", e.Flags)
	}
	if e.LockIndex != 0 {
		s += fmt.Sprintf(" locked=%d", e.LockIndex)
	}
	if !e.Session.IsZero() {
		s += fmt.Sprintf(" by=%s delay=%v", sessionText(e.Session), e.Delay)
	}
	if e.OnEnd == Delete {
		s += " goes"
	}
	return s
}

// parse reads a line: VERB KEY [VALUE] key=value…
//
//	put KEY VALUE flags= index= was=
//	remove KEY index= was=
//	remove-tree [PREFIX]
//	acquire KEY VALUE session= delay= goes
//	release KEY VALUE session=
//	end-delay KEY since=
//	open SESSION, close SESSION
func parse(t *testing.T, line string) core.Command {
	t.Helper()
	fields := strings.Fields(line)
	verb := fields[0]
	var pos []string
	args := map[string]string{}
	for _, f := range fields[1:] {
		k, v, named := strings.Cut(f, "=")
		if named || k == "goes" {
			args[k] = v
		} else {
			pos = append(pos, f)
		}
	}
	at := func(i int) string {
		if i < len(pos) {
			return pos[i]
		}
		return ""
	}
	number := func(name string) uint64 {
		if args[name] == "" {
			return 0
		}
		n, err := strconv.ParseUint(args[name], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	switch verb {
	case "open":
		return core.OpenSessionCommand{ID: session(at(0)), TTL: time.Minute}
	case "close":
		return core.CloseSessionCommand{ID: session(at(0))}
	}
	c := Command{Key: key(at(0)), Value: []byte(at(1)), Flags: number("flags"), Session: session(args["session"])}
	c.Verb = map[string]Verb{"put": Put, "acquire": Acquire, "release": Release, "remove": Remove, "remove-tree": RemoveTree, "end-delay": EndDelay}[verb]
	if _, given := args["index"]; given {
		c.If, c.Index = IfIndex, incumbent.Index(number("index"))
	}
	if was, given := args["was"]; given {
		c.If, c.Was = IfValue, []byte(was)
	}
	if verb == "end-delay" {
		c.Index = incumbent.Index(number("since"))
	}
	if _, goes := args["goes"]; goes {
		c.OnEnd = Delete
	}
	if args["delay"] != "" {
		var err error
		if c.Delay, err = time.ParseDuration(args["delay"]); err != nil {
			t.Fatal(err)
		}
	}
	return c
}
