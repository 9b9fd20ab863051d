package cluster

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model must refuse what may not happen, or a history proves nothing.
func TestTheModelTellsRightFromWrong(t *testing.T) {
	at := func(client int, call, ret int64, in input, out output) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Call: call, Return: ret, Input: in, Output: out}
	}
	claim := func(holder string) input { return input{verb: claimOp, lease: "l", holder: holder} }
	extend := func(holder string, token uint64) input {
		return input{verb: extendOp, lease: "l", holder: holder, token: token}
	}
	expire := input{verb: expireOp, lease: "l", token: 5}
	granted := func(token uint64) output { return output{ok: true, token: token} }
	get := input{verb: getOp, lease: "l"}
	for _, c := range []struct {
		name string
		ops  []porcupine.Operation
		want bool
	}{
		{"two holders", []porcupine.Operation{
			at(1, 0, 10, claim("a"), granted(5)), at(2, 20, 30, claim("b"), granted(7)),
		}, false},
		{"the second after the first one's time", []porcupine.Operation{
			at(1, 0, 10, claim("a"), granted(5)), at(3, 15, 1000, expire, output{ok: true}), at(2, 20, 30, claim("b"), granted(7)),
		}, true},
		{"the second before the first one's time", []porcupine.Operation{
			at(1, 0, 10, claim("a"), granted(5)), at(3, 40, 1000, expire, output{ok: true}), at(2, 20, 30, claim("b"), granted(7)),
		}, false},
		{"a token that falls", []porcupine.Operation{
			at(1, 0, 10, claim("a"), granted(5)), at(3, 15, 1000, expire, output{ok: true}), at(2, 20, 30, claim("b"), granted(4)),
		}, false},
		{"extended after another was granted", []porcupine.Operation{
			at(1, 0, 10, claim("a"), granted(5)), at(3, 15, 1000, expire, output{ok: true}), at(2, 20, 30, claim("b"), granted(7)),
			at(1, 40, 50, extend("a", 5), output{ok: true}),
		}, false},
		{"not held, though nobody took it", []porcupine.Operation{
			at(1, 0, 10, claim("a"), granted(5)), at(1, 20, 30, extend("a", 5), output{}),
		}, false},
		{"a stale read", []porcupine.Operation{
			at(1, 0, 10, claim("a"), granted(5)), at(2, 20, 30, get, output{}),
		}, false},
		{"an unknown claim that took effect", []porcupine.Operation{
			at(1, 0, 1000, claim("a"), output{unknown: true}), at(2, 20, 30, get, output{ok: true, holder: "a", token: 5}),
			at(2, 40, 50, get, output{ok: true, holder: "a", token: 5}),
		}, true},
		{"an unknown claim with two tokens", []porcupine.Operation{
			at(1, 0, 1000, claim("a"), output{unknown: true}), at(2, 20, 30, get, output{ok: true, holder: "a", token: 5}),
			at(2, 40, 50, get, output{ok: true, holder: "a", token: 6}),
		}, false},
		{"denied while it was free", []porcupine.Operation{at(2, 20, 30, claim("b"), output{})}, false},
	} {
		if got := porcupine.CheckOperations(model, c.ops); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// What a holder was told is when its holding may end.
func TestHistoryKeepsDeadlines(t *testing.T) {
	h := newHistory()
	h.began = h.began.Add(-2 * time.Minute)
	h.add(1, input{verb: claimOp, lease: "l", holder: "a"}, 0, output{ok: true, token: 5}, time.Hour)
	h.add(2, input{verb: getOp, lease: "l"}, h.now(), output{ok: true, holder: "a", token: 5}, 0)
	h.add(1, input{verb: extendOp, lease: "l", holder: "a", token: 5}, time.Minute, output{ok: true}, time.Hour)
	if got := h.until[holdingOf{"l", 5}]; got != time.Hour+time.Minute || len(h.until) != 1 {
		t.Errorf("until %v of %d holdings, want %v of one", got, len(h.until), time.Hour+time.Minute)
	}
	h.check(t)
}
