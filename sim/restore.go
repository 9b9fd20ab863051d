package sim

import (
	"bytes"
	"context"
	"encoding/hex"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// outage is how long no member runs before a backup is restored: whoever held
// something of the lost cluster counts on it no more when the new one begins, as
// operators are told to wait for.
const outage = maxTTL + maxTTL/4

// disaster is a backup, the loss of all members some time after it, and a new cluster
// that is restored from it.
type disaster struct {
	w     *world
	file  bytes.Buffer
	index incumbent.Index // of the backup
	old   []uint64        // members that it knows
}

// disasters plans one.
func (w *world) disasters() {
	if !w.cfg.Restore {
		return
	}
	d := &disaster{w: w}
	w.after(w.cfg.Duration/4+w.upTo(w.cfg.Duration/8), d.backUp)
}

// backUp takes a backup from any member, confirmed, as 'backup create' does, until one
// is there.
func (d *disaster) backUp() {
	w := d.w
	p := w.anyone().proc
	if p == nil || !p.ready() || p.frozen {
		w.after(w.upTo(returns), d.backUp)
		return
	}
	bound, taken := w.check.acked, false
	p.group.Confirm(func(err error) {
		if err != nil || p.gone || taken || d.index > 0 {
			return
		}
		taken = true
		v := p.group.View()
		w.check.read(p, v, bound)
		d.index = v.Index()
		w.must(backup.Write(context.Background(), &d.file, v, backup.Info{Cluster: hex.EncodeToString(w.cluster[:]), Member: "machine", At: time.Unix(0, 0)}))
		for _, m := range v.Members() {
			d.old = append(d.old, m.ID)
		}
		w.note("backup of member %d at index %d", p.m.at, d.index)
		w.after(w.upTo(w.cfg.Duration/8), d.strike)
	})
	p.work()
	w.after(answersIn, func() {
		if d.index == 0 {
			d.backUp()
		}
	})
}

// strike discards all members. Nothing of them comes back.
func (d *disaster) strike() {
	w := d.w
	w.note("all members are lost")
	w.down, w.operation, w.putBack = true, nil, nil
	for _, m := range w.members {
		m.emptied()
	}
	w.after(outage, d.restore)
}

// restore founds a cluster with the backup, of one member, which the others join.
func (d *disaster) restore() {
	w := d.w
	_, view, err := backup.Verify(bytes.NewReader(d.file.Bytes()), "backup")
	if err != nil {
		w.must(err)
		return
	}
	lost := w.check.index
	w.check.rewound(view)
	first := w.members[w.rng.IntN(w.cfg.Voters)]
	group, err := engine.New(engine.Config{Applied: func(a *engine.Applied) { w.check.applied(&process{m: first, w: w}, a) }})
	if err != nil {
		w.must(err)
		return
	}
	defer group.CloseWatches()
	w.must(backup.Load(group, view, d.index, nodeClock{first}.Now()))
	first.disk = vfs.NewMem() // with room, whatever went wrong meanwhile
	w.must(vfs.MkdirAll(first.disk, "data"))
	w.must(group.Open(node.Config{FS: first.disk, Dir: "data", Schema: core.SchemaVersion, Clock: nodeClock{first}, SegmentBytes: node.MinSegmentBytes}))
	if w.failed != nil {
		return
	}
	st := group.Node().Status()
	w.must(group.Close(context.Background()))
	first.id, w.cluster = st.Member, st.Cluster
	first.disk = first.disk.Clone()
	w.check.began(group.View(), max(lost, w.check.acked), d.old)
	w.note("restored on member %d at index %d, the lost cluster was at %d", first.at, group.View().Index(), lost)
	w.res.Restored++
	w.down = false
	var steps []step
	for _, m := range w.members {
		if m != first {
			steps = append(steps, m.joins()...)
		}
		m.boot()
	}
	if len(steps) > 0 {
		w.operate(first, steps...)
	}
	w.resume()
}

// resume lets clients go on. What they had sent to the lost members nobody answers, and
// they do not send it again; what they believe to have they keep.
func (w *world) resume() {
	for _, a := range w.agents {
		if a.token == 0 {
			a.begin()
			continue
		}
		a.turn++
		a.extending, a.attached.to = false, nil
		a.later(a.w.upTo(returns), func() {
			if !a.session.IsZero() {
				a.beat()
			}
			a.keep()
			a.later(a.w.upTo(3*maxTTL), a.release)
		})
	}
	for _, k := range w.writers {
		k.a.turn++
		clear(k.known)
		k.next()
	}
	for _, l := range w.lockers {
		l.begin()
	}
	for _, l := range w.listers {
		l.a.turn++
		l.next()
	}
	for _, h := range w.hosts {
		h.begin()
	}
	for _, k := range w.pollers {
		k.a.turn++
		*k = poller{w: w, a: k.a, question: k.question} // what it knew is of a history that is no more
		k.next()
	}
	for _, k := range w.tablers {
		k.begin()
	}
	for _, m := range w.monitors {
		m.a.turn++
		m.known = false
		m.lost()
	}
}

// began checks that the new cluster begins above all that the lost one can have shown
// (G3, G14), and that none of its members can join (G34).
func (c *checker) began(v *core.View, above incumbent.Index, old []uint64) {
	if v.Index() <= above {
		c.w.violate("a restored cluster begins at index %d, the lost one was at %d (G3, G14)", v.Index(), above)
	}
	for _, id := range old {
		if !v.MemberGone(id) {
			c.w.violate("member %x of the lost cluster may join the restored (G34)", id)
		}
	}
}

// rewound takes back what the checkers know behind the state of a backup: it was lost
// with all who had it, as backups are. What came until then is checked as a history of
// its own.
func (c *checker) rewound(v *core.View) {
	at := v.Index()
	c.keys.explain()
	was := c.replayed().View()
	c.lists.explain(was)
	c.tables.explain(was)
	for n := len(c.canon); n > 0 && c.canon[n-1].after > at; n-- {
		delete(c.places, c.canon[n-1].before)
		c.canon = c.canon[:n-1]
	}
	c.index = at
	if n := len(c.canon); n == 0 || c.canon[n-1].after != at || c.canon[n-1].hashed && c.canon[n-1].hash != v.Hash() {
		c.w.violate("the backup of index %d has a state that never was (G29)", at)
	}
	for token := range c.told {
		if incumbent.Index(token) > at {
			c.ended[token] = true
		}
	}
	for token := range c.ended {
		if leases.Of(v).ByToken(token) != nil {
			delete(c.ended, token)
		}
	}
	clear(c.tokens) // what the backup holds is held under its old token again
	leases.Of(v).All(func(l *leases.Lease) bool { c.tokens[l.Name] = l.Token; return true })
	clear(c.accepted) // only the leader knew, and the holder, for a while
	c.ledBefore += len(c.leaders)
	clear(c.leaders)
	c.term = 0
	c.keys.rewound(v)
	c.lists.rewound(v)
	c.catalog.rewound(v)
	c.policies.rewound(v)
	c.tables.rewound(v)
}
