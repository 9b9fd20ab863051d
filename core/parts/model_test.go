package parts

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// naive is what should wait of a member.
type naive struct {
	began, newest incumbent.Index
	whole         []byte
	sent          int
}

// Whatever parts come in whatever order, what waits is what a map of them says,
// deadlines are told of as they stand, and a snapshot is the same state.
func TestG25_PartsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{rt, core.New(small{}, blobs{})}
		model := map[uint64]*naive{}
		deadlines := map[string]*core.Deadline{}
		applied := ""
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			member := uint64(rapid.IntRange(1, 4).Draw(rt, "member"))
			m := model[member]
			var cmd []byte
			var next *naive
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1: // a new command
				text := string(bytes.Repeat([]byte{byte('a' + rapid.IntRange(0, 25).Draw(rt, "text"))}, rapid.IntRange(20, 100).Draw(rt, "bytes")))
				next = &naive{whole: put{text}.Encode(core.Meta{})}
				cmd = piece(member, 0, next.whole, 0)
			case 2: // the end of what waits, or of what does not
				newest := incumbent.Index(rapid.IntRange(1, 5).Draw(rt, "newest"))
				if m != nil && rapid.Bool().Draw(rt, "right") {
					newest = m.newest
				}
				cmd = Drop{Member: member, Newest: newest}.Encode(core.Meta{})
				if m != nil && m.newest == newest {
					delete(model, member)
				}
			case 3: // a stray part
				cmd = piece(member, 1, whole, few.part*rapid.IntRange(1, 3).Draw(rt, "stray"))
				if m != nil && m.began == 1 {
					continue
				}
			default: // the next part
				if m == nil {
					continue
				}
				next = m
				cmd = piece(member, m.began, m.whole, m.sent)
			}
			r, changes := w.apply(cmd)
			for _, c := range changes {
				if d := c.Family.Deadline; d != nil {
					if deadlines[d.ID] = d; d.After == 0 {
						delete(deadlines, d.ID)
					}
				}
			}
			if next != nil {
				if next != m {
					delete(model, member)
				}
				switch {
				case r.Err != nil && (next == m || r.Err.Kind != incumbent.Overloaded):
					rt.Fatalf("refused: %v", r.Err)
				case r.Err != nil:
				case next.sent+few.part >= len(next.whole):
					delete(model, member)
					applied = string(next.whole)
				default:
					if next.sent += few.part; next.began == 0 {
						next.began = r.Index
					}
					next.newest = r.Index
					model[member] = next
				}
			}
			w.compare(rt, model, deadlines, applied)
		}
	})
}

func (w *world) compare(rt *rapid.T, model map[uint64]*naive, deadlines map[string]*core.Deadline, applied string) {
	list := w.waiting()
	if len(list) != len(model) || len(deadlines) != len(model) {
		rt.Fatalf("%d wait, with %d deadlines, want %d", len(list), len(deadlines), len(model))
	}
	for _, l := range list {
		m := model[l.Member]
		if m == nil || l.Began != m.began || l.Newest != m.newest || !bytes.Equal(bytes.Join(l.parts, nil), m.whole[:m.sent]) {
			rt.Fatalf("of %d waits %+v, want %+v", l.Member, l, m)
		}
	}
	Of(w.s.View()).Deadlines(func(d *core.Deadline) bool {
		if got := deadlines[d.ID]; got == nil || *got != *d {
			rt.Fatalf("deadline %+v, told of %+v", d, got)
		}
		return true
	})
	if b := w.blob(); applied != "" && string(put{b.text}.Encode(core.Meta{})) != applied {
		rt.Fatalf("applied %q", b.text)
	}
	var b bytes.Buffer
	if err := w.s.View().WriteSnapshot(&b); err != nil {
		rt.Fatal(err)
	}
	again, err := core.Restore(&b, small{}, blobs{})
	if err != nil || again.View().Hash() != w.s.View().Hash() {
		rt.Fatalf("restored: %v", err)
	}
}
