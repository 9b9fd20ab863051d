package bench

import (
	"context"
	"time"
)

// Of the holders that fall silent in a flood.
const (
	silentShare   = 20                     // one in so many of the fleet's leases: 5 %
	silentProcess = 10                     // of them in a process: they share a stream, and its end
	silentEvery   = 100 * time.Millisecond // between two looks at what is left
)

// silentProcesses is how many processes of holders fall silent in one flood, beside a
// fleet of so many leases.
func silentProcesses(leases int) int {
	return max(1, (leases/silentShare+silentProcess-1)/silentProcess)
}

// mortals is a fleet of holders that are to fall silent, each with another who waits for
// its lease.
func (r *run) mortals(ctx context.Context) *fleet {
	return newGroup(ctx, r, group{
		prefix: "silent-", every: time.Duration(r.sc.Every), candidates: 2, perStream: silentProcess, apart: true,
	})
}

// fallSilent has n processes of holders fall silent from the first that has not, one after
// the other within a time: what they had open stays open, and they say nothing any more.
func (f *fleet) fallSilent(ctx context.Context, n int, within time.Duration) {
	began := f.now()
	for i := range n {
		if sleep(ctx, began+within*time.Duration(i)/time.Duration(n)-f.now()) != nil {
			return
		}
		f.silence(f.links[f.silenced])
		f.silenced++
	}
}

// silence has the agents of a stream fall silent.
func (f *fleet) silence(l *fleetLink) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l.mute = true
	for _, a := range l.agents {
		if a.token != 0 {
			f.left[a.lease] = a
			f.fell++
		}
	}
}

// extended is when the newest answer came to something that extends the agent's session: an
// extension of its own, an attachment, or a beat of its stream.
func (a *agent) extended() time.Duration { return max(a.heard, a.attached, a.link.beaten) }

// tookOver judges when an agent holds what one that fell silent held: the time at which that
// one's session was extended last and its ttl say when it was due. Held: f.mu.
func (f *fleet) tookOver(a *agent, now time.Duration) {
	was := f.left[a.lease]
	if was == nil || was == a {
		return
	}
	delete(f.left, a.lease)
	if was.link.unanswered(was) {
		return // nobody knows when it was extended last
	}
	f.opFreed.done(now, max(0, f.check.Freed(f.leaseName(a.lease), now, was.sent, was.extended(), f.ttl)), 1)
}

// unanswered reports whether something that keeps what the agent holds has no answer.
func (l *fleetLink) unanswered(a *agent) bool {
	for _, p := range l.pending {
		if p.what == stepBeat || p.agent == a {
			return true
		}
	}
	return false
}

// judgeSilent waits until somebody holds all that the silent ones left. Nobody is, a ttl
// after it was due, a violation.
func (f *fleet) judgeSilent(ctx context.Context) error {
	f.mu.Lock()
	end := f.now() // of the last that may be taken over in time
	for _, a := range f.left {
		end = max(end, a.extended()+dueAfter(f.ttl)+f.ttl) // one that comes late says by how much
	}
	f.mu.Unlock()
	for {
		f.mu.Lock()
		left := len(f.left)
		f.mu.Unlock()
		if left == 0 {
			return nil
		}
		if f.now() > end {
			f.check.Violate("nobody holds %d of %d leases, for which somebody waits, whose holders fell silent", left, f.fell)
			return nil
		}
		if err := sleep(ctx, silentEvery); err != nil {
			return err
		}
	}
}
