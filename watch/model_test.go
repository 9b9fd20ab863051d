package watch

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

// model is what the hub promises, said naively: all events ever, and for each
// reader how far it is.
type model struct {
	hub    *Hub
	index  incumbent.Index
	resets incumbent.Index // everything up to here is gone
	events []*Event
	serial int
	reader []*modelReader
}

type modelReader struct {
	*Reader
	sels  []Selector
	done  incumbent.Index // everything up to here delivered, or never wanted
	dead  bool
	begun int // events of the index after done that were delivered
}

// TestG15_G16_G17_G18_ReadersMatchANaiveList publishes, pulls, resumes, resets
// and cuts off at random. Whatever a reader gets must be the next events of
// the naive list that its selectors pick, whole indexes together; it is cut
// off exactly if one of those has left the history; its progress promises no
// more than it got.
func TestG15_G16_G17_G18_ReadersMatchANaiveList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := incumbent.Index(rapid.IntRange(0, 3).Draw(t, "start"))
		m := &model{index: start, resets: start}
		m.hub = New(Config{Limits: Limits{HistoryBytes: 12_000}}, nil, start)
		defer m.hub.Close()
		t.Repeat(map[string]func(*rapid.T){
			"publish":   m.publish,
			"subscribe": m.subscribe,
			"pull":      m.pull,
			"progress":  m.progress,
			"close":     m.close,
			"reset":     m.reset,
			"":          m.check,
		})
	})
}

var (
	modelNames  = rapid.SampledFrom([]string{"a", "ab", "abc", "b", "ba"})
	modelScopes = rapid.SampledFrom([][2]string{{"x", ""}, {"x", "y"}})
	modelKinds  = rapid.SampledFrom([]Kind{1, 2})
)

func drawTopic(t *rapid.T) Topic {
	return Topic{modelKinds.Draw(t, "kind"), modelScopes.Draw(t, "scope"), modelNames.Draw(t, "name")}
}

func drawSelector(t *rapid.T) Selector {
	topic := drawTopic(t)
	switch rapid.IntRange(0, 4).Draw(t, "match") {
	case 0:
		return All(topic.Kind)
	case 1:
		return Scope(topic.Kind, topic.Scope)
	case 2:
		return Prefix(topic.Kind, topic.Scope, topic.Name)
	default:
		return Exact(topic)
	}
}

func (m *model) publish(t *rapid.T) {
	var batch []*Event
	index := m.index
	for range rapid.IntRange(0, 4).Draw(t, "indexes") {
		index += incumbent.Index(rapid.IntRange(1, 3).Draw(t, "skip"))
		for range rapid.IntRange(1, 3).Draw(t, "events") {
			m.serial++
			e := &Event{Index: index, Payload: m.serial, Size: rapid.IntRange(0, 1500).Draw(t, "size")}
			for range rapid.IntRange(1, 3).Draw(t, "topics") {
				e.Topics = append(e.Topics, drawTopic(t))
			}
			batch = append(batch, e)
		}
	}
	index += incumbent.Index(rapid.IntRange(0, 1).Draw(t, "empty"))
	m.hub.Publish(nil, index, batch)
	m.index = index
	m.events = append(m.events, batch...)
}

func (m *model) reset(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rarely") != 0 {
		t.Skip("only now and then")
	}
	m.index += incumbent.Index(rapid.IntRange(1, 10).Draw(t, "by"))
	m.resets = m.index
	m.hub.Reset(nil, m.index)
}

func (m *model) floor() incumbent.Index { return m.hub.Stats().Floor }

func (m *model) subscribe(t *rapid.T) {
	r := &modelReader{}
	for range rapid.IntRange(1, 3).Draw(t, "selectors") {
		r.sels = append(r.sels, drawSelector(t))
	}
	r.done = incumbent.Index(rapid.IntRange(max(0, int(m.index)-12), int(m.index)+4).Draw(t, "from"))
	got, err := m.hub.Subscribe(r.done, func() {}, r.sels...)
	if r.done < m.floor() {
		if incumbent.KindOf(err) != incumbent.Compacted {
			t.Fatalf("subscribed from %d below floor %d: %v", r.done, m.floor(), err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Reader = got
	m.reader = append(m.reader, r)
}

func (r *modelReader) picks(e *Event) bool {
	for _, s := range r.sels {
		if s.Picks(e) {
			return true
		}
	}
	return false
}

// wanted returns what the reader should get next, and whether it has lost any.
func (m *model) wanted(r *modelReader) (es []*Event, lost bool) {
	if r.done < m.resets {
		return nil, true
	}
	for _, e := range m.events {
		if e.Index > r.done && r.picks(e) {
			es = append(es, e)
			lost = lost || e.Index <= m.floor()
		}
	}
	return es[min(r.begun, len(es)):], lost
}

// took notes what a pull gave: what is beyond progress is a part of its index.
func (r *modelReader) took(es []*Event, progress incumbent.Index) {
	if progress > r.done {
		r.begun = 0
	}
	for _, e := range es {
		if e.Index > progress {
			r.begun++
		}
	}
	r.done = progress
}

func (m *model) draw(t *rapid.T) *modelReader {
	if len(m.reader) == 0 {
		t.Skip("no reader")
	}
	return m.reader[rapid.IntRange(0, len(m.reader)-1).Draw(t, "reader")]
}

func (m *model) pull(t *rapid.T) {
	r := m.draw(t)
	want, lost := m.wanted(r)
	limit, size := rapid.IntRange(0, 5).Draw(t, "limit"), rapid.IntRange(0, 4000).Draw(t, "bytes")
	b, err := r.Pull(nil, limit, size)
	if r.dead || lost {
		if incumbent.KindOf(err) != incumbent.Compacted || len(b.Events) > 0 {
			t.Fatalf("lost events, but got %v, %v", b, err)
		}
		r.dead = true
		return
	}
	if err != nil {
		t.Fatalf("nothing lost, but got %v", err)
	}
	n := 0
	for n < len(want) && (n == 0 || n < limit && want[n].Size <= size) {
		size -= want[n].Size
		n++
	}
	if got, want := fmt.Sprint(payloads(b.Events)), fmt.Sprint(payloads(want[:n])); got != want {
		t.Fatalf("from %d limit %d got %s, want %s", r.done, limit, got, want)
	}
	progress := max(r.done, m.index)
	if n < len(want) {
		progress = r.done
		for _, e := range want[:n] {
			if e.Index < want[n].Index {
				progress = e.Index
			}
		}
	}
	if b.Progress != progress || b.More != (n < len(want)) {
		t.Fatalf("progress %d more %v, want %d %v", b.Progress, b.More, progress, n < len(want))
	}
	r.took(want[:n], progress)
}

func (m *model) progress(t *rapid.T) {
	r := m.draw(t)
	want, lost := m.wanted(r)
	got := r.Progress()
	if got < r.done {
		t.Fatalf("progress went back from %d to %d", r.done, got)
	}
	if got > r.done && (len(want) > 0 || lost || r.dead) {
		t.Fatalf("progress %d while %d after %d are to be delivered, lost %v", got, len(want), r.done, lost)
	}
	r.took(nil, got)
}

func (m *model) close(t *rapid.T) {
	r := m.draw(t)
	r.Close()
	for i, x := range m.reader {
		if x == r {
			m.reader = append(m.reader[:i], m.reader[i+1:]...)
			return
		}
	}
}

// check compares what can be seen from outside, and the structure inside.
func (m *model) check(t *rapid.T) {
	s := m.hub.Stats()
	if s.Readers != len(m.reader) || s.Listeners != len(m.reader) || s.Index != m.index {
		t.Fatalf("stats %+v, want %d readers at %d", s, len(m.reader), m.index)
	}
	var charged int64
	links := map[*node]int{}
	h := &m.hub.hist
	for p := h.tail; p <= h.head; p++ {
		charged += h.at(p).charged.Load()
		for i := range h.at(p).links {
			links[h.at(p).links[i].node]++
		}
	}
	if s.HistoryBytes != charged {
		t.Fatalf("history costs %d, its events %d", s.HistoryBytes, charged)
	}
	if s.HistoryBytes > 12_000 && h.at(h.tail).Index != h.at(h.head).Index {
		// Links that a new prefix adds may exceed until the next publish.
		if over := s.HistoryBytes - 12_000; over > linkBytes*100 {
			t.Fatalf("history costs %d", s.HistoryBytes)
		}
	}
	for key, n := range m.hub.reg.nodes {
		if n.kept != links[n] {
			t.Fatalf("node %v keeps %d of %d links", key, n.kept, links[n])
		}
		if n.kept == 0 && len(n.legs) == 0 && n.below == 0 {
			t.Fatalf("node %v is of no use", key)
		}
		delete(links, n)
	}
	if len(links) > 0 {
		t.Fatalf("%d nodes are linked but not registered", len(links))
	}
}

func payloads(es []*Event) []any {
	var out []any
	for _, e := range es {
		out = append(out, e.Payload)
	}
	return out
}
