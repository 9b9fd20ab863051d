package cluster

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history is what clients did to leases and when, on one clock: that of this
// process. Whether some order of the operations explains all the answers, each
// operation taking effect at one moment between its call and its return, is for
// porcupine to find out.
//
// Time enters as operations nobody called: a holding may be freed by the server at
// any moment from its holder's own deadline on, and not before. That deadline
// counts from when the holder sent the last request that was acknowledged.

// verb is what an operation does.
type verb uint8

const (
	claimOp verb = iota
	extendOp
	releaseOp
	getOp
	expireOp // by the server
)

// input is one operation on one lease.
type input struct {
	verb   verb
	lease  string
	holder string
	token  uint64 // of the holding it means
}

// output is what it answered.
type output struct {
	unknown bool   // it may have taken effect, or not, or will
	ok      bool   // granted, extended, released; of a get: held
	holder  string // of a get
	token   uint64 // granted; of a get: of the holding
}

// holding is the state of one lease. Token 0: free. A token that nobody has
// been told yet is unknownToken until an answer shows it.
type holding struct {
	holder string
	token  uint64
	last   uint64 // greatest token seen
}

const unknownToken = math.MaxUint64

// expire is the freeing of a holding whose time has passed.
func (h holding) free() holding { return holding{last: max(h.last, known(h.token))} }

func known(token uint64) uint64 {
	if token == unknownToken {
		return 0
	}
	return token
}

// is reports whether the holding may be the one that a token names.
func (h holding) is(token uint64) bool {
	return h.token == token || h.token == unknownToken && token > h.last
}

// model is the lease as a client may see it.
var model = (&porcupine.NondeterministicModel{
	Partition: byLease,
	Init:      func() []any { return []any{holding{}} },
	Step: func(state, in, out any) []any {
		return step(state.(holding), in.(input), out.(output)) //nolint:forcetypeassert // what the history holds
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%+v -> %+v", in, out)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}).ToModel()

func byLease(history []porcupine.Operation) [][]porcupine.Operation {
	parts := make(map[string][]porcupine.Operation)
	var names []string
	for _, op := range history {
		name := op.Input.(input).lease //nolint:forcetypeassert // what the history holds
		if parts[name] == nil {
			names = append(names, name)
		}
		parts[name] = append(parts[name], op)
	}
	slices.Sort(names)
	out := make([][]porcupine.Operation, len(names))
	for i, name := range names {
		out[i] = parts[name]
	}
	return out
}

// step returns every state that h may be in after an operation with this answer.
func step(h holding, in input, out output) []any {
	switch in.verb {
	case claimOp:
		return claimed(h, in, out)
	case extendOp:
		return extended(h, in, out)
	case releaseOp:
		return released(h, in, out)
	case getOp:
		return seen(h, out)
	default: // an expiry takes effect, or the holding was gone already
		if h.is(in.token) {
			return []any{h.free()}
		}
		return []any{h}
	}
}

func claimed(h holding, in input, out output) []any {
	granted := holding{holder: in.holder, token: out.token, last: max(h.last, known(out.token))}
	switch {
	case out.unknown && h.token == 0:
		return []any{h, holding{holder: in.holder, token: unknownToken, last: h.last}}
	case out.unknown:
		return []any{h} // held by another, or it extended its own
	case !out.ok && h.token != 0 && h.holder != in.holder:
		return []any{h}
	case out.ok && h.token == 0 && out.token > h.last:
		return []any{granted}
	case out.ok && h.holder == in.holder && h.is(out.token):
		return []any{granted} // its own already
	}
	return nil
}

func extended(h holding, in input, out output) []any {
	held := h.is(in.token) && h.holder == in.holder
	switch {
	case out.unknown:
		return []any{h}
	case out.ok && held:
		return []any{holding{holder: h.holder, token: in.token, last: max(h.last, in.token)}}
	case !out.ok && (!held || h.token == unknownToken):
		return []any{h}
	}
	return nil
}

func released(h holding, in input, out output) []any {
	switch {
	case out.unknown && h.is(in.token):
		return []any{h, h.free()}
	case h.is(in.token):
		return []any{h.free()}
	}
	return []any{h} // a release of what is over does nothing
}

func seen(h holding, out output) []any {
	switch {
	case out.unknown:
		return []any{h}
	case !out.ok && h.token == 0:
		return []any{h}
	case out.ok && h.holder == out.holder && h.is(out.token):
		return []any{holding{holder: h.holder, token: out.token, last: max(h.last, out.token)}}
	}
	return nil
}

// history collects operations from many goroutines.
type history struct {
	began time.Time

	mu    sync.Mutex // guards the rest
	ops   []porcupine.Operation
	until map[holdingOf]time.Duration // own deadline of each holding that was granted
	seen  map[holdingOf]time.Duration // when a get that showed it first was called
}

// holdingOf names one holding.
type holdingOf struct {
	lease string
	token uint64
}

func newHistory() *history {
	return &history{began: time.Now(), until: make(map[holdingOf]time.Duration), seen: make(map[holdingOf]time.Duration)}
}

func (h *history) now() time.Duration { return time.Since(h.began) }

// add records an operation that was called at a moment and has just returned.
// held is for how long it was acknowledged, less the drift; 0: not at all.
func (h *history) add(client int, in input, called time.Duration, out output, held time.Duration) {
	returned := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	end := int64(returned)
	if out.unknown {
		end = math.MaxInt64
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(called), Return: end})
	if in.verb == getOp && out.ok && out.token != 0 {
		at := holdingOf{in.lease, out.token}
		if first, known := h.seen[at]; !known || called < first {
			h.seen[at] = called
		}
	}
	if held <= 0 || out.unknown || !out.ok {
		return
	}
	token := in.token
	if in.verb == claimOp {
		token = out.token
	}
	at := holdingOf{in.lease, token}
	h.until[at] = max(h.until[at], called+held)
}

// grants is how many claims were granted so far.
func (h *history) grants() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, op := range h.ops {
		in, out := op.Input.(input), op.Output.(output) //nolint:forcetypeassert // what the history holds
		if in.verb == claimOp && out.ok {
			n++
		}
	}
	return n
}

// check fails the test unless some order explains the history.
func (h *history) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	ops := slices.Clone(h.ops)
	client := 1 << 20 // of the server: each expiry is a client of its own
	untils := maps.Clone(h.until)
	for at, first := range h.seen {
		if _, promised := untils[at]; !promised { // its claim was not answered: its end is promised to nobody
			untils[at] = first
		}
	}
	for at, until := range untils {
		ops = append(ops, porcupine.Operation{
			ClientId: client, Call: int64(until), Return: math.MaxInt64,
			Input: input{verb: expireOp, lease: at.lease, token: at.token}, Output: output{ok: true},
		})
		client++
	}
	h.mu.Unlock()
	verdict, info := porcupine.CheckOperationsVerbose(model, ops, 5*time.Minute)
	if verdict == porcupine.Ok {
		return
	}
	path := filepath.Join(os.TempDir(), t.Name()+".html")
	if err := porcupine.VisualizePath(model, info, path); err != nil {
		path = err.Error()
	}
	t.Errorf("porcupine says %s of %d operations: %s", verdict, len(ops), path)
}
