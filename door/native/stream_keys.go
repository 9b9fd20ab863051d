package native

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// Keys, values and transactions over a stream: the calls of the same names, without a
// goroutine, a request of HTTP and an answer of its own for each.

// keys serves a frame about keys.
func (s *stream) keys(f *pb.ClientFrame, deadline time.Time) error {
	switch r := f.Request.(type) {
	case *pb.ClientFrame_Put:
		return s.changeKey(nil, f.Id, deadline, putCommand(r.Put), r.Put.Idempotency, func(c *kv.Command, f *former, r core.Result) *pb.ServerFrame {
			return &pb.ServerFrame{Answer: &pb.ServerFrame_Put{Put: &pb.PutResponse{Index: uint64(r.Index), Entry: f.stored(s.who, c, r)}}}
		})
	case *pb.ClientFrame_Delete:
		return s.changeKey(nil, f.Id, deadline, deleteCommand(r.Delete), r.Delete.Idempotency, func(c *kv.Command, f *former, r core.Result) *pb.ServerFrame {
			out := deleted(r)
			if r.Err != nil {
				out.Entry = f.stored(s.who, c, r)
			}
			return &pb.ServerFrame{Answer: &pb.ServerFrame_Delete{Delete: out}}
		})
	case *pb.ClientFrame_Lock:
		return s.lock(nil, f.Id, r.Lock, deadline)
	case *pb.ClientFrame_Unlock:
		c, err := unlockCommand(r.Unlock)
		if err != nil {
			return err
		}
		return s.changeKey(nil, f.Id, deadline, c, r.Unlock.Idempotency, func(c *kv.Command, f *former, r core.Result) *pb.ServerFrame {
			return &pb.ServerFrame{Answer: &pb.ServerFrame_Unlock{Unlock: &pb.UnlockResponse{Index: uint64(r.Index), Entry: f.stored(s.who, c, r)}}}
		})
	case *pb.ClientFrame_GetKey:
		return s.getKey(f.Id, deadline, r.GetKey)
	case *pb.ClientFrame_ListKeys:
		return s.read(f.Id, deadline, calls.ListKeys.LaneOfRead(r.ListKeys.GetStale()), r.ListKeys.GetStale(), groupOf(r.ListKeys), func(fm *former) (*pb.ServerFrame, error) {
			out, err := s.listKeys(fm, r.ListKeys)
			return &pb.ServerFrame{Id: f.Id, Answer: &pb.ServerFrame_ListKeys{ListKeys: out}}, err
		})
	case *pb.ClientFrame_Txn:
		return s.txn(f.Id, r.Txn, deadline)
	}
	return invalid("request", "is empty or unknown to this member")
}

// changeKey hands a change of keys on, in a place that its caller has, if it has one.
func (s *stream) changeKey(has *admit.Place, id uint64, deadline time.Time, c *kv.Command, key *pb.Idempotency, form func(*kv.Command, *former, core.Result) *pb.ServerFrame) error {
	o := keyOperationOf(c)
	if _, err := o.setKey(key); err != nil {
		return err
	}
	place, ok := has.Take()
	if !ok {
		var err error
		if place, err = s.door.lanes.Enter(s.who.work(groupOfNamespace(c.Key.Namespace)), callOfKey(c).Lane(), 1); err != nil {
			return err
		}
	}
	way := &streamOp{s: s, id: id, about: o, place: place, form: func(f *former, r core.Result) *pb.ServerFrame { return form(c, f, r) }}
	s.door.writeKey(s.who, s.door.callBy(deadline, s.who, o), o, c, way.settled)
	return nil
}

// lock locks a key, in a place that its caller has, if it has one.
func (s *stream) lock(has *admit.Place, id uint64, in *pb.LockRequest, deadline time.Time) error {
	c, err := lockCommand(in)
	if err != nil {
		return err
	}
	return s.changeKey(has, id, deadline, c, in.Idempotency, func(c *kv.Command, f *former, r core.Result) *pb.ServerFrame {
		return &pb.ServerFrame{Answer: &pb.ServerFrame_Lock{Lock: &pb.LockResponse{Index: uint64(r.Index), Entry: f.stored(s.who, c, r)}}}
	})
}

// getKey reads one entry. The goroutine that answers looks at a view that is at least
// as new as the confirmation: those of many streams share one look at it.
func (s *stream) getKey(id uint64, deadline time.Time, in *pb.GetKeyRequest) error {
	place, err := s.door.lanes.Enter(s.who.work(groupOf(in)), calls.GetKey.LaneOfRead(in.GetStale()), 1)
	if err != nil {
		return err
	}
	way := &streamOp{s: s, id: id, place: place}
	way.form = func(f *former, r core.Result) *pb.ServerFrame {
		if r.Err != nil {
			return &pb.ServerFrame{}
		}
		out, err := f.key(s.who, in)
		if err != nil {
			err = f.d.denied(s.who, auth.KeyRead, in.Namespace+":"+in.Key, err)
			return &pb.ServerFrame{Error: errorPB(err, f.d.standing(), nil)}
		}
		return &pb.ServerFrame{Answer: &pb.ServerFrame_GetKey{GetKey: out}}
	}
	if in.Stale {
		way.settled(core.Result{})
		return nil
	}
	s.door.confirm(func(err error) {
		if err == nil {
			err = s.door.late(deadline)
		}
		if err != nil {
			way.settled(core.Result{Err: asError(err)})
			return
		}
		way.settled(core.Result{})
	})
	return nil
}

// listKeys reads a page for as long as a call may take.
func (s *stream) listKeys(f *former, in *pb.ListKeysRequest) (*pb.ListKeysResponse, error) {
	ctx, cancel := s.door.deadline(context.Background())
	defer cancel()
	out, err := f.keys(ctx, s.who, in)
	return out, s.door.denied(s.who, auth.KeyRead, in.Namespace+":"+in.Prefix, err)
}

// txn hands a transaction on. One with many steps is looked at by a goroutine of the
// door: the worker has other connections to serve.
func (s *stream) txn(id uint64, in *pb.TxnRequest, deadline time.Time) error {
	o := &operation{action: auth.KeyWrite, txn: in}
	if _, err := o.setKey(in.Idempotency); err != nil {
		return err
	}
	steps := stepsOf(in)
	if err := steps.within(); err != nil {
		return err
	}
	place, err := s.door.lanes.Enter(s.who.work(groupOf(in)), laneOfTxn(in), steps.cost())
	if err != nil {
		return err
	}
	way := &streamOp{s: s, id: id, about: o, place: place, form: func(f *former, r core.Result) *pb.ServerFrame {
		if r.Err != nil {
			return failedTxn(r)
		}
		return &pb.ServerFrame{Answer: &pb.ServerFrame_Txn{Txn: f.txnAnswer(in, r)}}
	}}
	run := func() {
		p, err := s.door.planOf(s.who, in)
		if err != nil {
			way.settled(core.Result{Err: asError(err)})
			return
		}
		o.command = p.txn
		s.door.commit(s.door.callBy(deadline, s.who, o), o, p, way.settled)
	}
	if steps.cost() > inlineSteps {
		s.door.work.Put(run)
		return nil
	}
	run()
	return nil
}

// failedTxn says which operation of a transaction failed.
func failedTxn(r core.Result) *pb.ServerFrame {
	if r.Txn == nil || r.Txn.Failed == 0 {
		return &pb.ServerFrame{}
	}
	return &pb.ServerFrame{Answer: &pb.ServerFrame_Txn{Txn: &pb.TxnResponse{Unmet: uint32(r.Txn.Unmet), Failed: uint32(r.Txn.Failed)}}}
}
