package watch

import (
	"fmt"
	"slices"
	"strings"
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
	sels  []drawn
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
		m.hub = New(Config{Limits: Limits{HistoryBytes: 12_000}, Differences: diffs{}}, start)
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

// modelChange is the payload of an event: records of two fields, as each was and is.
type modelChange struct {
	serial  int
	records []modelRecord
}

type modelRecord struct{ was, is *[2]string }

func (r modelRecord) changed(f int) bool { return r.was == nil || r.is == nil || r.was[f] != r.is[f] }

func (r modelRecord) has(f int, value string) bool {
	return r.was != nil && r.was[f] == value || r.is != nil && r.is[f] == value
}

// partChanged: a record has the part that its first field says.
func (r modelRecord) partChanged(part string) bool {
	return (r.was != nil && r.was[0] == part) != (r.is != nil && r.is[0] == part)
}

func (c *modelChange) some(holds func(modelRecord) bool) bool {
	return slices.ContainsFunc(c.records, holds)
}

func drawRecords(t *rapid.T) []modelRecord {
	list := []modelRecord{{drawRecord(t), drawRecord(t)}}
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "more records") {
		list = append(list, modelRecord{drawRecord(t), drawRecord(t)})
	}
	return list
}

func drawRecord(t *rapid.T) *[2]string {
	if rapid.IntRange(0, 5).Draw(t, "none") == 0 {
		return nil
	}
	return &[2]string{modelValues.Draw(t, "value"), modelValues.Draw(t, "value")}
}

var modelValues = rapid.SampledFrom([]string{"", "u", "v"})

// diffs are the differences of modelChange.
type diffs struct{}

func (diffs) Changed(e *Event) (s Fields) {
	for f := range 2 {
		if e.Payload.(*modelChange).some(func(r modelRecord) bool { return r.changed(f) }) {
			s = s.With(Field(f))
		}
	}
	return s
}

func (diffs) Values(e *Event, f Field, list []string) []string {
	for _, r := range e.Payload.(*modelChange).records {
		for _, r := range []*[2]string{r.was, r.is} {
			if r != nil {
				list = append(list, r[f])
			}
		}
	}
	return list
}

func (diffs) PartsChanged(e *Event) func(Parts) bool {
	return func(p Parts) bool {
		return e.Payload.(*modelChange).some(func(r modelRecord) bool {
			return r.partChanged(p.Names) && (!p.Where || r.has(int(p.Field), p.Value))
		})
	}
}

// drawn is a selector, and what it picks said naively.
type drawn struct {
	Selector
	topic func(Topic) bool
	event []func(*modelChange) bool
}

func (s drawn) picks(e *Event) bool {
	return (slices.ContainsFunc(e.Topics, s.topic) || e.Shared != nil && slices.ContainsFunc(e.Shared.Topics, s.topic)) &&
		!slices.ContainsFunc(s.event, func(holds func(*modelChange) bool) bool { return !holds(e.Payload.(*modelChange)) })
}

func drawSelector(t *rapid.T) (s drawn) {
	topic := drawTopic(t)
	scope := func(o Topic) bool { return o.Kind == topic.Kind && o.Scope == topic.Scope }
	switch rapid.IntRange(0, 6).Draw(t, "match") {
	case 0:
		s.Selector, s.topic = All(topic.Kind), func(o Topic) bool { return o.Kind == topic.Kind }
	case 1:
		s.Selector, s.topic = Scope(topic.Kind, topic.Scope), scope
	case 2:
		s.Selector = Prefix(topic.Kind, topic.Scope, topic.Name)
		s.topic = func(o Topic) bool { return scope(o) && strings.HasPrefix(o.Name, topic.Name) }
	case 3:
		to := topic.Name + modelNames.Draw(t, "end")
		s.Selector = Range(topic.Kind, topic.Scope, topic.Name, to)
		s.topic = func(o Topic) bool { return scope(o) && topic.Name <= o.Name && o.Name < to }
	default:
		s.Selector, s.topic = Exact(topic), func(o Topic) bool { return o == topic }
	}
	where, f, v := rapid.IntRange(0, 2).Draw(t, "where") == 0, rapid.IntRange(0, 1).Draw(t, "field"), modelValues.Draw(t, "value")
	part := ""
	partChanged := func(c *modelChange) bool {
		return c.some(func(r modelRecord) bool { return r.partChanged(part) && (!where || r.has(f, v)) })
	}
	if rapid.IntRange(0, 2).Draw(t, "changing") == 0 {
		f := rapid.IntRange(0, 1).Draw(t, "changed field")
		part = rapid.SampledFrom([]string{"", "u", "v"}).Draw(t, "part")
		s.Selector = s.Changing(Fields(0).With(Field(f))).ChangingParts(part)
		s.event = append(s.event, func(c *modelChange) bool {
			return c.some(func(r modelRecord) bool { return r.changed(f) }) || part != "" && partChanged(c)
		})
	} else if rapid.IntRange(0, 2).Draw(t, "parted") == 0 {
		part = rapid.SampledFrom([]string{"u", "v"}).Draw(t, "part")
		s.Selector = s.ChangingParts(part)
		s.event = append(s.event, func(c *modelChange) bool {
			return partChanged(c) && (diffs{}).Changed(&Event{Payload: c}) != 0
		})
	}
	if where {
		s.Selector = s.Where(Field(f), v)
		s.event = append(s.event, func(c *modelChange) bool { return c.some(func(r modelRecord) bool { return r.has(f, v) }) })
	}
	return s
}

func (m *model) publish(t *rapid.T) {
	var batch []*Event
	index := m.index
	shared := []*Shared{nil, drawShared(t), drawShared(t)}
	for range rapid.IntRange(0, 4).Draw(t, "indexes") {
		index += incumbent.Index(rapid.IntRange(1, 3).Draw(t, "skip"))
		for range rapid.IntRange(1, 3).Draw(t, "events") {
			m.serial++
			e := &Event{Index: index, Payload: &modelChange{m.serial, drawRecords(t)}, Size: rapid.IntRange(0, 1500).Draw(t, "size")}
			for range rapid.IntRange(1, 3).Draw(t, "topics") {
				e.Topics = append(e.Topics, drawTopic(t))
			}
			e.Shared = rapid.SampledFrom(shared).Draw(t, "shared")
			batch = append(batch, e)
		}
	}
	index += incumbent.Index(rapid.IntRange(0, 1).Draw(t, "empty"))
	m.hub.Publish(index, batch)
	m.index = index
	m.events = append(m.events, batch...)
}

func drawShared(t *rapid.T) *Shared {
	return NewShared(rapid.SliceOfN(rapid.Custom(drawTopic), 1, 6).Draw(t, "shared topics"), rapid.IntRange(0, 100).Draw(t, "size"))
}

func (m *model) reset(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rarely") != 0 {
		t.Skip("only now and then")
	}
	m.index += incumbent.Index(rapid.IntRange(1, 10).Draw(t, "by"))
	m.resets = m.index
	m.hub.Reset(m.index)
}

func (m *model) floor() incumbent.Index { return m.hub.Stats().Floor }

func (m *model) subscribe(t *rapid.T) {
	r := &modelReader{}
	for range rapid.IntRange(1, 3).Draw(t, "selectors") {
		r.sels = append(r.sels, drawSelector(t))
	}
	r.done = incumbent.Index(rapid.IntRange(max(0, int(m.index)-12), int(m.index)+4).Draw(t, "from"))
	selectors := make([]Selector, len(r.sels))
	for i := range r.sels {
		selectors[i] = r.sels[i].Selector
	}
	got, err := m.hub.Subscribe(r.done, func() {}, selectors...)
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
	return slices.ContainsFunc(r.sels, func(s drawn) bool { return s.picks(e) })
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
	links, shared := map[*node]int{}, map[*Shared]int{}
	h := &m.hub.hist
	for p := h.tail; p <= h.head; p++ {
		charged += h.at(p).charged.Load()
		if s := h.at(p).Shared; s != nil {
			shared[s]++
		}
		for i := range h.at(p).links {
			links[h.at(p).links[i].node]++
		}
	}
	for of, kept := range shared {
		charged += of.charged.Load()
		if of.kept != kept {
			t.Fatalf("topics are shared by %d events, counted %d", kept, of.kept)
		}
	}
	if s.HistoryBytes != charged {
		t.Fatalf("history costs %d, its events and what they share %d", s.HistoryBytes, charged)
	}
	if s.HistoryBytes > 12_000 && h.at(h.tail).Index != h.at(h.head).Index {
		// Links that a new prefix adds may exceed until the next publish.
		if over := s.HistoryBytes - 12_000; over > linkBytes*100 {
			t.Fatalf("history costs %d", s.HistoryBytes)
		}
	}
	nodes := 0
	m.hub.reg.each(func(n *node) {
		nodes++
		if int(n.kept) != links[n] {
			t.Fatalf("node %d keeps %d of %d links", n.id, n.kept, links[n])
		}
		if n.kept == 0 && !n.listened() && n.below == 0 {
			t.Fatalf("node %d is of no use", n.id)
		}
		delete(links, n)
	})
	if nodes != m.hub.reg.count {
		t.Fatalf("%d nodes, counted %d", nodes, m.hub.reg.count)
	}
	if len(links) > 0 {
		t.Fatalf("%d nodes are linked but not registered", len(links))
	}
}

func payloads(es []*Event) []any {
	var out []any
	for _, e := range es {
		out = append(out, e.Payload.(*modelChange).serial)
	}
	return out
}
