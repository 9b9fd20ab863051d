package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
)

// readsEvery is how often an agent reads and looks for changes, on average.
const readsEvery = time.Second

// reader is the part of an agent that looks: it reads linearizably at any
// member, reads what its own member shows without asking anybody, and watches.
type reader struct {
	a    *agent
	seen incumbent.Index // the greatest index the agent was told
	watcher

	shown   incumbent.Index // by the connection
	showing *process        // to this process
}

func (r *reader) begin() {
	r.every(r.read)
	r.every(r.readStale)
	r.every(r.watcher.look)
}

// every does something again and again, while the agent is not silent.
func (r *reader) every(do func()) {
	w := r.a.w
	w.after(w.upTo(2*readsEvery), func() {
		if r.a.retired {
			return
		}
		if w.now >= r.a.quiet {
			do()
		}
		r.every(do)
	})
}

// hears takes note of an index that the agent was told.
func (r *reader) hears(i incumbent.Index) { r.seen = max(r.seen, i) }

// read reads linearizably at any member: whatever anybody was told before the
// request arrived, the answer knows.
func (r *reader) read() {
	w := r.a.w
	w.anyone().receive(r.a, func(p *process) {
		p.look(r.a.principal(), calls.GetLease.Lane(), time.Time{}, func(view *core.View, err error) {
			if err == nil {
				p.reply(func() { r.hears(view.Index()) })
			}
		})
	}, func() {})
}

// look reads linearizably, and checks that the state shows what anybody was told when
// the request arrived.
func (p *process) look(principal string, lane admit.Lane, deadline time.Time, then func(*core.View, error)) {
	p.admit(request{whoIs(principal), lane, deadline}, func(leave func()) {
		bound := p.w.check.acked
		p.node.Confirm(func(_ uint64, err error) {
			leave()
			switch {
			case err != nil:
				then(nil, err)
			case !p.gone:
				p.w.check.read(p, p.group.View(), bound)
				then(p.group.View(), nil)
			}
		})
	}, func(err *incumbent.Error) { then(nil, err) })
}

// readStale reads what the member shows. One connection never shows less than it
// did, and an agent that knows more than the member waits.
func (r *reader) readStale() {
	r.a.at.receive(r.a, func(p *process) {
		at := p.group.View().Index()
		if r.showing == p && at < r.shown {
			r.a.w.violate("member %d showed agent %d index %d after %d on one connection (G23)", p.m.at, r.a.id, at, r.shown)
		}
		r.showing, r.shown = p, at
		r.a.w.check.shown(p, p.group.View())
		p.reply(func() { r.hears(at) })
	}, func() {})
}
