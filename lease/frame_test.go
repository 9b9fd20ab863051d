package lease

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
)

// samples returns one frame of each kind with everything that it can say.
func samples() map[string][]byte {
	out := make(map[string][]byte)
	var w writer
	keep := func(name string) { out[name] = append([]byte(nil), w.b...) }
	w.start(header{askFrame, 7, 3, 300, 299})
	w.counted(announceRecord, counted{sessionID(1), 9})
	w.item(&Extension{Token: 1000}, false, 0)
	w.item(&Extension{Token: 998, TTL: 1500 * time.Millisecond}, false, 0)
	w.item(&Extension{Token: math.MaxUint64}, false, 0)
	w.item(&Extension{Session: sessionID(2)}, true, 0)
	w.item(&Extension{Session: sessionID(3)}, true, math.MaxUint64)
	w.item(&Extension{Named: &Named{leaseName("ü"), "h"}, Session: sessionID(4)}, false, 0)
	w.item(&Extension{Named: &Named{}, TTL: incumbent.MaxTTL}, false, 0)
	w.item(&Extension{Lasting: &Lasting{63, "ü\x00b", math.MaxUint64}}, false, 0)
	w.counted(detachRecord, counted{sessionID(5), 1})
	w.look(&Inspected{Token: 5})
	w.look(&Inspected{Session: sessionID(6)})
	keep("ask")
	w.start(header{answerFrame, 7, 3, 300, 77})
	w.looked(1, &Inspected{Known: true, Running: true, Attached: true, ExpiresIn: time.Hour, Extends: 3, LastExtend: 0})
	w.looked(0, &Inspected{LastExtend: -1})
	w.answer(0, &Extension{Held: time.Second})
	w.answer(1, &Extension{Held: time.Second, Revoking: true, RevokingTokens: []incumbent.Token{4, math.MaxUint64}})
	w.answer(5, &Extension{Kind: incumbent.NotHolder})
	w.answer(300, &Extension{Kind: incumbent.Internal})
	w.answer(301, &Extension{Held: 1234567 * time.Nanosecond, Revoking: true})
	keep("answer")
	w.start(header{refuseFrame, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64})
	keep("refuse")
	w.start(header{lostFrame, 0, 3, 0, 0})
	w.session(counted{sessionID(1), 2})
	keep("lost")
	return out
}

func TestFrames(t *testing.T) {
	want := map[string]frame{
		"ask": {
			header: header{askFrame, 7, 3, 300, 299},
			items: []Extension{
				{Token: 1000},
				{Token: 998, TTL: 1500 * time.Millisecond},
				{Token: math.MaxUint64},
				{Session: sessionID(2)},
				{Session: sessionID(3)},
				{Named: &Named{leaseName("ü"), "h"}, Session: sessionID(4)},
				{Named: &Named{}, TTL: incumbent.MaxTTL},
				{Lasting: &Lasting{63, "ü\x00b", math.MaxUint64}},
			},
			bindings:  []binding{{3, 0}, {4, math.MaxUint64}},
			announced: []counted{{sessionID(1), 9}},
			detached:  []counted{{sessionID(5), 1}},
			looks:     []Inspected{{Token: 5}, {Session: sessionID(6)}},
		},
		"answer": {
			header: header{answerFrame, 7, 3, 300, 77},
			answers: []answered{
				{item: 0, held: time.Second},
				{item: 1, held: time.Second, revoking: []incumbent.Token{4, math.MaxUint64}},
				{item: 5, kind: incumbent.NotHolder},
				{item: 300, kind: incumbent.Internal},
				{item: 301, held: 1234567, revoking: []incumbent.Token{}},
			},
			looks: []Inspected{
				{Known: true, Running: true, Attached: true, ExpiresIn: time.Hour, Extends: 3},
				{LastExtend: -1},
			},
			looked: []int32{1, 0},
		},
		"refuse": {header: header{refuseFrame, math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}},
		"lost":   {header: header{lostFrame, 0, 3, 0, 0}, lost: []counted{{sessionID(1), 2}}},
	}
	unexported := cmp.AllowUnexported(frame{}, header{}, Extension{}, binding{}, counted{}, answered{}, Batch{})
	for name, b := range samples() {
		var f frame
		if !f.decode(b) {
			t.Errorf("%s cannot be read: %x", name, b)
			continue
		}
		if d := cmp.Diff(want[name], f, unexported); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		for n := range b {
			var cut frame
			if cut.decode(b[:n]) && name == "refuse" {
				t.Errorf("%s cut to %d bytes is read", name, n)
			}
		}
	}
}

// What is wrong is refused: it may come from a member of another version, and
// must not be taken for something else.
func TestBadFrames(t *testing.T) {
	var w writer
	frameOf := func(kind byte, records ...byte) []byte {
		w.start(header{kind, 1, 1, 1, 1})
		return append(slices.Clone(w.b), records...)
	}
	zero := make([]byte, 16)
	bad := map[string][]byte{
		"nothing":             {},
		"version":             append([]byte{9}, frameOf(refuseFrame)[1:]...),
		"kind":                frameOf(9),
		"kind 0":              frameOf(0),
		"refusal with more":   frameOf(refuseFrame, 0),
		"item of nothing":     frameOf(askFrame, itemRecord),
		"token 0":             frameOf(askFrame, withToken, 0),
		"session 0":           frameOf(askFrame, append([]byte{withSession}, zero...)...),
		"attach by token":     frameOf(askFrame, withToken|withCounter, 2, 1),
		"long ttl":            frameOf(askFrame, withToken|withTTL, 2, 0xff, 0xff, 0xff, 0xff, 0xf),
		"long text":           frameOf(askFrame, withNamed, 0xff, 0xf),
		"text beyond the end": frameOf(askFrame, withNamed, 5, 'a'),
		"number too long":     frameOf(askFrame, withToken, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"unknown kind":        frameOf(answerFrame, 30),
		"far item":            frameOf(answerFrame, byte(incumbent.NotHolder)|withGap, 0xff, 0xff, 0x7f),
		"many tokens":         frameOf(answerFrame, withRevoking, 5, 200),
		"far look":            frameOf(answerFrame, lookAnswer, 0xff, 0x7f, 0, 0, 0, 0),
		"too long":            make([]byte, MaxFrameBytes+1),
	}
	for name, b := range bad {
		if f := new(frame); f.decode(b) {
			t.Errorf("%s is read: %x", name, b)
		}
	}
}

// FuzzFrame: reading never panics, and an ask that can be read can be served.
func FuzzFrame(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := new(frame)
		if !fr.decode(b) {
			return
		}
		if n := len(fr.items) + len(fr.answers) + len(fr.looks) + len(fr.lost) + len(fr.announced) + len(fr.detached); n > len(b) {
			t.Fatalf("%d records in %d bytes", n, len(b))
		}
		c := newCluster(t, Config{}, 2)
		c.lead(1)
		fr.term = c.term
		if fr.boot == 2<<32|1 {
			fr.boot = 0 // not as the answer to what member 2 asks below
		}
		p := c.at(1)
		p.turn(func() { p.receive(2, fr) })
		c.claimAndExtend(t)
	})
}

// claimAndExtend checks that member 2 is served.
func (c *cluster) claimAndExtend(t *testing.T) {
	t.Helper()
	token := c.at(2).claim("a", "h", ttl)
	if b, done := c.at(2).extend(Extension{Token: token}); !*done || b.Items[0].Kind != incumbent.OK {
		t.Fatalf("done %v: %v", *done, b.Items[0].Kind)
	}
}
