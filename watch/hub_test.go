package watch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/datadriven"

	"github.com/incumbent-dev/incumbent"
)

// TestTranscripts runs the conversations in testdata. Each directive ends when
// the hub's goroutines have nothing more to do.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			p := &player{readers: map[string]*Reader{}, waits: map[string]func() bool{}}
			defer func() { p.hub.Close() }()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				out, err := p.play(d)
				synctest.Wait()
				out = p.take() + out
				if err != nil {
					out += err.Error() + "\n"
				}
				return out
			})
		})
	})
}

type player struct {
	hub     *Hub
	readers map[string]*Reader
	waits   map[string]func() bool

	mu   sync.Mutex // callbacks run on several goroutines
	said []string
}

func (p *player) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, fmt.Sprintf(format, args...))
}

// take returns what callbacks said; their order is nobody's promise.
func (p *player) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.said)
	s := strings.Join(p.said, "")
	p.said = nil
	return s
}

func (p *player) play(d *datadriven.TestData) (string, error) {
	name := ""
	if len(d.CmdArgs) > 0 && len(d.CmdArgs[0].Vals) == 0 {
		name = d.CmdArgs[0].Key
	}
	index := func(key string) incumbent.Index {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				n, _ := strconv.ParseUint(a.Vals[0], 10, 64)
				return incumbent.Index(n)
			}
		}
		return 0
	}
	switch d.Cmd {
	case "open":
		p.hub = New(Config{Limits: Limits{HistoryBytes: int64(index("bytes")), MaxListeners: int(index("listeners"))}}, index("index"))
	case "publish":
		p.hub.Publish(index("index"), parseEvents(d.Input))
	case "reset":
		p.hub.Reset(index("index"))
	case "subscribe":
		var sels []Selector
		for _, f := range strings.Fields(d.Input) {
			sels = append(sels, parseSelector(f))
		}
		r, err := p.hub.Subscribe(index("from"), func() { p.say("wake %s\n", name) }, sels...)
		if err != nil {
			return "", err
		}
		p.readers[name] = r
	case "pull":
		b, err := p.readers[name].Pull(nil, int(index("max")), anySize)
		if err != nil {
			return "", err
		}
		return formatEvents(b.Events) + fmt.Sprintf("progress %d more %v\n", b.Progress, b.More), nil
	case "progress":
		return fmt.Sprintf("%d\n", p.readers[name].Progress()), nil
	case "unsubscribe":
		p.readers[name].Close()
	case "wait":
		var cond func(*Event) bool
		if until, ok := d.CmdArgs[len(d.CmdArgs)-1], true; ok && until.Key == "until" {
			cond = func(e *Event) bool { return e.Payload == until.Vals[0] }
		}
		w, err := p.hub.Wait(parseSelector(strings.TrimSpace(d.Input)), index("after"), cond, p.fired(name))
		if err != nil {
			return "", err
		}
		p.waits[name] = w.Cancel
	case "reached":
		w, err := p.hub.await(index("index"), p.fired(name))
		if err != nil {
			return "", err
		}
		p.waits[name] = w.cancel
	case "cancel":
		return fmt.Sprintf("%v\n", p.waits[name]()), nil
	case "close":
		p.hub.Close()
	case "stats":
		s := p.hub.Stats()
		return fmt.Sprintf("index %d floor %d kept %d readers %d waiters %d listeners %d dropped %d cut off %d nodes %d\n",
			s.Index, s.Floor, s.Kept, s.Readers, s.Waiters, s.Listeners, s.Dropped, s.CutOff, p.hub.reg.count), nil
	default:
		return "", fmt.Errorf("unknown directive %s", d.Cmd)
	}
	return "", nil
}

func (p *player) fired(name string) func(Fired) {
	return func(f Fired) {
		what := ""
		if f.Event != nil {
			what = fmt.Sprintf(" %v", f.Event.Payload)
		}
		if f.Err != nil {
			what += " " + f.Err.Error()
		}
		p.say("fired %s index %d%s\n", name, f.Index, what)
	}
}

// parseEvents reads lines of: index topic[,topic…] payload [bytes].
func parseEvents(s string) []*Event {
	var es []*Event
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		n, _ := strconv.ParseUint(f[0], 10, 64)
		e := &Event{Index: incumbent.Index(n), Payload: f[2]}
		for t := range strings.SplitSeq(f[1], ",") {
			e.Topics = append(e.Topics, parseSelector(t).topic)
		}
		if len(f) > 3 {
			e.Size, _ = strconv.Atoi(f[3])
		}
		es = append(es, e)
	}
	return es
}

// parseSelector reads kind:scope/scope/name, with * for the rest.
func parseSelector(s string) Selector {
	k, rest, _ := strings.Cut(s, ":")
	n, _ := strconv.Atoi(k)
	kind := Kind(n)
	if rest == "*" {
		return All(kind)
	}
	f := strings.SplitN(rest, "/", 3)
	scope := [2]string{f[0], f[1]}
	if prefix, ok := strings.CutSuffix(f[2], "*"); ok {
		return Prefix(kind, scope, prefix)
	}
	return Exact(Topic{kind, scope, f[2]})
}

func formatEvents(es []*Event) string {
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintf(&b, "%d %v\n", e.Index, e.Payload)
	}
	return b.String()
}
