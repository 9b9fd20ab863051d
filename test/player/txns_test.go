package player

import (
	"bytes"
	"fmt"
	"testing"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// txn makes a transaction about keys, guarded by what they are and by a lease, as far as
// is known. No two of its operations are about one key.
func (d dice) txn() *pb.TxnRequest {
	in := &pb.TxnRequest{}
	for range d.IntN(3) {
		if d.oneIn(3) {
			p := d.place()
			in.Conditions = append(in.Conditions, &pb.Condition{Is: &pb.Condition_Held{Held: &pb.HeldCondition{Name: p.pb(), Token: max(1, d.token(p))}}})
			continue
		}
		key := pick(d, keyNames)
		in.Conditions = append(in.Conditions, &pb.Condition{Is: &pb.Condition_Key{Key: &pb.KeyCondition{
			Key: key, Is: &pb.KeyCondition_ModifiedIndex{ModifiedIndex: d.keyIndex(key)},
		}}})
	}
	used := map[string]bool{}
	for range d.IntN(4) {
		key := pick(d, keyNames)
		if used[key] {
			continue
		}
		used[key] = true
		if d.oneIn(3) {
			in.Then = append(in.Then, getStep(key))
			continue
		}
		put := &pb.PutRequest{Key: key, Value: pick(d, playedValues), Flags: d.Uint64() >> d.IntN(64)}
		in.Then = append(in.Then, &pb.TxnOperation{Op: &pb.TxnOperation_Put{Put: put}})
	}
	for range d.IntN(3) {
		in.Else = append(in.Else, getStep(pick(d, keyNames)))
	}
	return in
}

func getStep(key string) *pb.TxnOperation {
	return &pb.TxnOperation{Op: &pb.TxnOperation_Get{Get: &pb.GetKeyRequest{Key: key}}}
}

// answeredTxn judges the answer of a transaction: what it read and stored is what there
// was at its index, and its conditions were so where it stood.
func (c *call) answeredTxn(in *pb.TxnRequest, out *pb.TxnResponse, e *pb.Error, ok bool) {
	what := fmt.Sprintf("txn %v", in)
	switch {
	case !ok:
		return
	case e != nil:
		c.b.count("Txn" + kindOf(e))
		c.refused(what, e, valid)
		return
	}
	ops, stored := in.Else, 0
	if out.Succeeded {
		ops = in.Then
	}
	if out.Succeeded != (out.Unmet == 0) || int(out.Unmet) > len(in.Conditions) || len(out.Results) != len(ops) {
		c.fail("%s: answered %v", what, out)
		return
	}
	c.b.count(fmt.Sprintf("Txn that succeeds: %v", out.Succeeded))
	c.at(out.Index)
	for i, op := range ops {
		put := op.GetPut()
		if put == nil {
			c.sawKey(what, op.GetGet().GetKey(), out.Results[i].GetGet().GetEntry(), out.Index, true)
			continue
		}
		stored++
		c.keyHappened(what, put.Key, out.Index, func(now *pb.KeyValue) bool {
			return now != nil && now.Flags == put.Flags && bytes.Equal(now.Value, put.Value)
		})
	}
	at := out.Index // where the conditions were judged
	if stored > 0 {
		at--
	}
	for i, x := range in.Conditions {
		n := i + 1
		if out.Unmet != 0 && n > int(out.Unmet) {
			break // not judged
		}
		c.condition(fmt.Sprintf("%s, condition %d", what, n), x, at, n != int(out.Unmet))
	}
}

// condition has it checked that a condition held after an index, or did not.
func (c *call) condition(what string, x *pb.Condition, index uint64, held bool) {
	c.later(func(w window) string {
		var is, known bool
		if k := x.GetKey(); k != nil {
			var e *pb.KeyValue
			e, known = w.keys.at(k.Key, index)
			is = e.GetModifiedIndex() == k.GetModifiedIndex()
		} else {
			var l *pb.Lease
			l, known = w.at(placeOf(x.GetHeld().Name), index)
			is = l.GetToken() == x.GetHeld().Token
		}
		if known && is != held {
			return fmt.Sprintf("%s: judged as %v at index %d, and was %v", what, held, index, is)
		}
		return ""
	})
}

func TestTheJudgeOfTransactionsTellsRightFromWrong(t *testing.T) {
	in := &pb.TxnRequest{
		Conditions: []*pb.Condition{{Is: &pb.Condition_Key{Key: &pb.KeyCondition{Key: "a", Is: &pb.KeyCondition_ModifiedIndex{ModifiedIndex: 10}}}}},
		Then:       []*pb.TxnOperation{getStep("a")},
		Else:       []*pb.TxnOperation{getStep("a")},
	}
	stored, locked := entryAt(10, "v", ""), entryAt(20, "w", "s")
	for name, c := range map[string]struct {
		floor, later, index uint64
		unmet               uint32
		read                *pb.KeyValue
		want                bool
	}{
		"a condition that holds":                  {12, 17, 15, 0, stored, true},
		"one that does not":                       {22, 27, 25, 1, locked, true},
		"done, though a condition does not hold":  {22, 27, 25, 0, locked, false},
		"not done, though all conditions hold":    {12, 17, 15, 1, stored, false},
		"read as it was before":                   {22, 27, 25, 1, stored, false},
		"an index older than what was known":      {22, 27, 15, 0, stored, false},
		"a condition that is none of the request": {12, 17, 15, 2, stored, false},
	} {
		right := true
		b := newBook(func(string, ...any) { right = false })
		tellKeys(b.keys)
		b.begin("before").at(c.floor)
		b.begin("call").answeredTxn(in, &pb.TxnResponse{
			Succeeded: c.unmet == 0, Unmet: c.unmet, Index: c.index,
			Results: []*pb.TxnResult{{Result: &pb.TxnResult_Get{Get: &pb.GetKeyResponse{Entry: c.read}}}},
		}, nil, true)
		b.begin("later").at(c.later)
		b.settle(map[scope]*timeline{native: newTimeline(native, t.Errorf)}, 50)
		if right != c.want {
			t.Errorf("%s: found right: %v", name, right)
		}
	}
}
