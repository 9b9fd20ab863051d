package native

import (
	"strconv"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
)

// plan is a checked transaction of a caller who may do all that it says.
type plan struct {
	txn             core.Txn
	then, otherwise branch
	judged          incumbent.Index // says by which policies: see [core.Meta]
}

// branch are the operations of then, or of else.
type branch struct {
	ops    []core.Command
	writes int // those that may change something
	frees  int // of those: that make room or let go
}

// reads reports whether the transaction changes nothing, whatever the state.
func (p *plan) reads() bool { return p.then.writes+p.otherwise.writes == 0 }

// frees reports whether all it changes makes room or lets go, so that it may use what
// is kept back for that.
func (p *plan) frees() bool {
	return !p.reads() && p.then.frees == p.then.writes && p.otherwise.frees == p.otherwise.writes
}

// planOf checks a transaction that has no more steps than it may: what its messages say,
// and that the caller may ask for every condition and do every operation.
func (d *Door) planOf(who *caller, in *pb.TxnRequest) (*plan, error) {
	p := &plan{judged: d.judged(who)}
	c := core.TxnCommand{If: make([]core.Condition, 0, len(in.Conditions))}
	for i, is := range in.Conditions {
		condition, err := d.conditionOf(who, is)
		if err != nil {
			return nil, inField(stepName("conditions", i), err)
		}
		c.If = append(c.If, condition)
	}
	for _, b := range []struct {
		name string
		ops  []*pb.TxnOperation
		to   *branch
	}{{"then", in.Then, &p.then}, {"else", in.Else, &p.otherwise}} {
		b.to.ops = make([]core.Command, 0, len(b.ops))
		for i, op := range b.ops {
			if err := d.planStep(who, op, b.to); err != nil {
				return nil, inField(stepName(b.name, i), err)
			}
		}
	}
	c.Then, c.Else = p.then.ops, p.otherwise.ops
	p.txn = c.Pack()
	return p, nil
}

func stepName(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func (d *Door) conditionOf(who *caller, in *pb.Condition) (core.Condition, error) {
	switch is := in.GetIs().(type) {
	case *pb.Condition_Key:
		c, err := keyCondition(is.Key)
		return d.allowedCondition(who, c, err)
	case *pb.Condition_Range:
		c := kv.Condition{Key: keyIn(is.Range.Namespace, is.Range.Prefix)}
		switch what := is.Range.Is.(type) {
		case *pb.RangeCondition_Empty:
			if c.Test = kv.None; !what.Empty {
				return nil, invalid("range.empty", "is false; only true means something")
			}
		case *pb.RangeCondition_UnchangedSince:
			c.Test, c.Index = kv.Unchanged, incumbent.Index(what.UnchangedSince)
		default:
			return nil, invalid("range", "says nothing of the keys")
		}
		return d.allowedCondition(who, &c, nil)
	case *pb.Condition_Held:
		name, err := leaseName(is.Held.Name)
		switch {
		case err != nil:
			return nil, err
		case is.Held.Token == 0:
			return nil, invalid("held.token", "is missing")
		}
		return leases.IfHeld{Name: name, Token: incumbent.Token(is.Held.Token)}, d.allowRead(who, calls.IfHeld.Action(), name)
	case *pb.Condition_SessionOpen:
		id, err := neededSession("session_open", is.SessionOpen)
		if err != nil {
			return nil, err
		}
		return core.IfOpen{ID: id}, d.allowIfOpen(who, id)
	}
	return nil, invalid("condition", "is empty or unknown to this member")
}

func (d *Door) allowedCondition(who *caller, c *kv.Condition, err error) (core.Condition, error) {
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return *c, d.allowKey(who, calls.IfKeys.Action(), c.Key, c.Test == kv.None || c.Test == kv.Unchanged)
}

// allowIfOpen checks that a caller may ask whether a session is open. That there is
// none everybody may know who has its id.
func (d *Door) allowIfOpen(who *caller, id incumbent.SessionID) error {
	s := d.view().Session(id)
	if s == nil {
		return nil
	}
	return d.authorize(who, calls.IfSession.Action(), auth.Resource{Owner: s.Origin.Principal})
}

func keyCondition(in *pb.KeyCondition) (*kv.Condition, error) {
	c := &kv.Condition{Key: keyIn(in.Namespace, in.Key)}
	switch in.Comparison {
	case pb.Comparison_COMPARISON_UNSPECIFIED, pb.Comparison_COMPARISON_EQUAL:
	case pb.Comparison_COMPARISON_NOT_EQUAL:
		c.Compare = kv.NotEqual
	case pb.Comparison_COMPARISON_LESS:
		c.Compare = kv.Less
	case pb.Comparison_COMPARISON_GREATER:
		c.Compare = kv.Greater
	default:
		return nil, invalid("comparison", "%d is unknown to this member", in.Comparison)
	}
	switch is := in.Is.(type) {
	case *pb.KeyCondition_ModifiedIndex:
		c.Test, c.Index = kv.Modified, incumbent.Index(is.ModifiedIndex)
	case *pb.KeyCondition_Value:
		c.Test, c.Value = kv.HasValue, is.Value
	case *pb.KeyCondition_LockedBy:
		id, err := neededSession("locked_by", is.LockedBy)
		if err != nil {
			return nil, err
		}
		c.Test, c.Session = kv.LockedBy, id // whose it is, allowedCondition looks at
	default:
		return nil, invalid("key", "nothing is said of it")
	}
	return c, nil
}

// planStep checks one operation and puts it into its branch.
func (d *Door) planStep(who *caller, in *pb.TxnOperation, to *branch) error {
	switch op := in.GetOp().(type) {
	case *pb.TxnOperation_Release:
		o, err := releaseOp(op.Release)
		return d.planLease(who, in, o, err, true, to)
	case *pb.TxnOperation_Claim:
		if op.Claim.Wait {
			return invalid("wait", "is set: a transaction waits for nobody")
		}
		o, err := claimOp(who.principal, op.Claim)
		return d.planLease(who, in, o, err, false, to)
	}
	c, err := keyOperation(in)
	if err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	reads := c.Verb == kv.Get || c.Verb == kv.List
	if err := d.allowChange(who, callOfStep(in).Action(), c); err != nil {
		return err
	}
	if !c.Session.IsZero() {
		if err := d.allowSession(who, auth.SessionUse, c.Session); err != nil {
			return err
		}
	}
	if reads {
		to.ops = append(to.ops, c)
		return nil
	}
	to.writes++
	if engine.Frees(c, kv.Of(d.view())) {
		to.frees++
	}
	to.ops = append(to.ops, c)
	return nil
}

func (d *Door) planLease(who *caller, in *pb.TxnOperation, o *operation, err error, frees bool, to *branch) error {
	if err != nil {
		return err
	}
	o.action = callOfStep(in).Action()
	if o.key != nil {
		return errInnerKey()
	}
	if err := d.allow(who, o); err != nil {
		return err
	}
	to.ops = append(to.ops, o.command)
	to.writes++
	if frees {
		to.frees++
	}
	return nil
}

func errInnerKey() error {
	return invalid("idempotency", "belongs to the whole transaction, not to one operation")
}

// keyOperation reads an operation on keys.
func keyOperation(in *pb.TxnOperation) (c *kv.Command, err error) {
	var key *pb.Idempotency
	switch op := in.GetOp().(type) {
	case *pb.TxnOperation_Get:
		if op.Get.Stale {
			return nil, errStale()
		}
		return &kv.Command{Verb: kv.Get, Key: keyIn(op.Get.Namespace, op.Get.Key)}, nil
	case *pb.TxnOperation_List:
		return keyListing(op.List)
	case *pb.TxnOperation_Put:
		c, key = putCommand(op.Put), op.Put.Idempotency
	case *pb.TxnOperation_Delete:
		c, key = deleteCommand(op.Delete), op.Delete.Idempotency
	case *pb.TxnOperation_Lock:
		c, err = lockCommand(op.Lock)
		key = op.Lock.Idempotency
	case *pb.TxnOperation_Unlock:
		c, err = unlockCommand(op.Unlock)
		key = op.Unlock.Idempotency
	default:
		return nil, invalid("operation", "is empty or unknown to this member")
	}
	if err == nil && key != nil {
		err = errInnerKey()
	}
	return c, err
}

func errStale() error { return invalid("stale", "is set: a transaction reads what is") }

func keyListing(in *pb.ListKeysRequest) (*kv.Command, error) {
	switch {
	case in.Stale:
		return nil, errStale()
	case in.Separator != "":
		return nil, invalid("separator", "is of no use in a transaction")
	case in.After != "":
		return nil, invalid("after", "is of no use in a transaction")
	}
	return &kv.Command{Verb: kv.List, Key: keyIn(in.Namespace, in.Prefix), Limit: uint64(in.Limit), KeysOnly: in.KeysOnly}, nil
}
