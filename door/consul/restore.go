package consul

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/overload"
	"github.com/incumbent-dev/incumbent/prepared"
)

// Limits of what one transaction of a restore changes.
const (
	maxRestoreSteps = core.MaxTxnSteps
	maxRestoreBytes = 16 << 20         // of values and records, about
	restoreTimeout  = 30 * time.Second // of one transaction
)

// snapshotRestore has what the door shows say what a snapshot says: keys, prepared
// queries, nodes, services and checks. What a cluster has granted and promised is not
// taken back while its members and clients go on: sessions, locks and all else stay as
// they are, and indexes go up.
func snapshotRestore(d *Door, r *request) {
	if d.cfg.Restore == nil {
		r.failFor(incumbent.Errorf(incumbent.Unavailable, "this member takes no snapshots"))
		return
	}
	if _, err := gzip.NewReader(bytes.NewReader(r.body)); err != nil {
		r.fail(http.StatusInternalServerError, "failed to decompress snapshot: %v", err)
		return
	}
	r.confirmed(func() {
		if !d.snapshot.CompareAndSwap(false, true) {
			r.failFor(overload.Errorf("this member has a snapshot under way already"))
			return
		}
		d.operations.Go(func() {
			answer := r.restore()
			d.snapshot.Store(false)
			answer()
		})
	})
}

// restore reads the snapshot, does what makes the state say the same, and returns what
// answers.
func (r *request) restore() (answer func()) {
	d := r.door
	from, err := d.cfg.Restore(bytes.NewReader(r.body))
	if err != nil {
		r.operated(d.namespace, "restore from a snapshot", 0, err)
		return func() { r.fail(http.StatusInternalServerError, "failed to restore from snapshot: %s", textOf(err)) }
	}
	ctx, cancel := context.WithCancel(d.life)
	defer cancel()
	r.whenGone(cancel)
	var index incumbent.Index
	transactions := d.restoration(from, d.view())
	for i, t := range transactions {
		res, err := r.restoreStep(ctx, t)
		if err == nil {
			index = res.Index
			continue
		}
		r.operated(d.namespace, fmt.Sprintf("restore from a snapshot of index %v: %d of %d transactions are done", from.Index(), i, len(transactions)), index, err)
		if i == 0 {
			return func() { r.failFor(err) }
		}
		return func() {
			r.fail(http.StatusInternalServerError, "failed to restore from snapshot: %d of %d transactions are done; to repeat it does the rest: %s", i, len(transactions), textOf(err))
		}
	}
	r.operated(d.namespace, "restored from a snapshot of index "+from.Index().String(), max(index, d.view().Index()), nil)
	return r.ok
}

func (r *request) restoreStep(ctx context.Context, c core.TxnCommand) (core.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	return r.door.engine.Await(ctx, engine.Call{Meta: core.Meta{Origin: r.origin(), Judged: r.who.judged}}, c.Pack())
}

// restoration are the transactions that have one state show by this door what another
// does: one, unless there is more to change than fits.
func (d *Door) restoration(from, to *core.View) []core.TxnCommand {
	p := &restoring{door: d, from: from, to: to, gone: map[string]bool{}}
	namespaces := []string{d.namespace, prepared.Namespace(d.namespace)}
	for _, n := range namespaces {
		p.removeKeys(n)
	}
	p.deregister()
	p.register()
	for _, n := range namespaces {
		p.putKeys(n)
	}
	return p.transactions
}

// restoring is a restore that is being planned: what goes comes before what comes.
type restoring struct {
	door         *Door
	from, to     *core.View      // what is to be, and what is
	gone         map[string]bool // nodes that go with all they have
	transactions []core.TxnCommand
	bytes        int // of the last one
}

// add adds a step that carries about so many bytes.
func (p *restoring) add(c core.Command, size int) {
	last := len(p.transactions) - 1
	if last < 0 || len(p.transactions[last].Then) == maxRestoreSteps || p.bytes+size > maxRestoreBytes {
		p.transactions, p.bytes = append(p.transactions, core.TxnCommand{}), 0
		last++
	}
	p.transactions[last].Then = append(p.transactions[last].Then, c)
	p.bytes += size
}

// eachKeyOf calls fn with the keys of a namespace.
func eachKeyOf(v *core.View, namespace string, fn func(*kv.Entry)) {
	first := kv.Key{Namespace: namespace}
	kv.Of(v).Ascend(first, first, func(e *kv.Entry) bool {
		fn(e)
		return true
	})
}

func (p *restoring) removeKeys(namespace string) {
	eachKeyOf(p.to, namespace, func(e *kv.Entry) {
		if kv.Of(p.from).Entry(e.Key) == nil {
			p.add(kv.Command{Verb: kv.Remove, Key: e.Key}, len(e.Name))
		}
	})
}

func (p *restoring) putKeys(namespace string) {
	eachKeyOf(p.from, namespace, func(e *kv.Entry) {
		is := kv.Of(p.to).Entry(e.Key)
		if is == nil || is.Flags != e.Flags || !bytes.Equal(is.Value, e.Value) {
			p.add(kv.Command{Verb: kv.Put, Key: e.Key, Value: e.Value, Flags: e.Flags}, len(e.Name)+len(e.Value))
		}
	})
}

// kept reports whether a node is one that members see to themselves, with its service
// and the check that says whether it is there: what they and the agent are.
func (p *restoring) kept(node string) bool {
	return incumbent.Alike(node, p.door.cfg.Node) || slices.ContainsFunc(p.door.cfg.Cluster.Members(), func(m Member) bool { return incumbent.Alike(m.Name, node) })
}

// deregister takes out what is not in the snapshot.
func (p *restoring) deregister() {
	ns, is, was := p.door.namespace, catalog.Of(p.to), catalog.Of(p.from)
	remove := func(k catalog.Kind, node, id string) {
		p.add(catalog.Command{Verb: catalog.Deregister, Target: catalog.Target{Kind: k, Namespace: ns, Node: node, ID: id}}, len(node)+len(id))
	}
	is.Checks(ns, func(c *catalog.Check) bool {
		if was.Check(ns, c.Node, c.ID) == nil && (!incumbent.Alike(c.ID, nodeHealth) || !p.kept(c.Node)) {
			remove(catalog.CheckKind, c.Node, c.ID)
		}
		return true
	})
	is.AllInstances(ns, func(i *catalog.Instance) bool {
		if s := i.Service; was.Service(ns, s.Node, s.ID) == nil && agentHas(s) {
			remove(catalog.ServiceKind, s.Node, s.ID)
		}
		return true
	})
	is.Nodes(ns, "", func(n *catalog.Node) bool {
		if o := was.Node(ns, n.Name); (o == nil || o.ID != n.ID) && !p.kept(n.Name) {
			p.gone[incumbent.Fold(n.Name)] = true
			remove(catalog.NodeKind, n.Name, "")
		}
		return true
	})
}

// register registers what is in the snapshot. Of services that end with a session those
// come back whose session is open.
func (p *restoring) register() {
	ns, was := p.door.namespace, catalog.Of(p.from)
	was.Nodes(ns, "", func(n *catalog.Node) bool {
		if !p.kept(n.Name) {
			p.registerOne(catalog.Command{Target: catalog.Target{Node: n.Name}, Node: n})
		}
		return true
	})
	dropped := map[[2]string]bool{}
	was.AllInstances(ns, func(i *catalog.Instance) bool {
		s := i.Service
		switch {
		case !s.Session.IsZero() && p.to.Session(s.Session) == nil:
			dropped[[2]string{s.Node, s.ID}] = true
		case agentHas(s) || !p.kept(s.Node):
			p.registerOne(catalog.Command{Target: catalog.Target{Node: s.Node}, Service: s})
		}
		return true
	})
	was.Checks(ns, func(c *catalog.Check) bool {
		if (!incumbent.Alike(c.ID, nodeHealth) || !p.kept(c.Node)) && !dropped[[2]string{c.Node, c.ServiceID}] {
			p.registerOne(catalog.Command{Target: catalog.Target{Node: c.Node}, Checks: []*catalog.Check{c}})
		}
		return true
	})
}

// registerOne registers a record that is not there as it is.
func (p *restoring) registerOne(c catalog.Command) {
	c.Verb, c.Target.Namespace = catalog.Register, p.door.namespace
	if !p.gone[incumbent.Fold(c.Target.Node)] {
		res, idle := catalog.Of(p.to).Idling(&c, func(id incumbent.SessionID) bool { return p.to.Session(id) != nil })
		if idle && res.Err == nil {
			return
		}
	}
	p.add(c, len(c.Encode(core.Meta{})))
}
