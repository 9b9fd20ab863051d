package bench

import (
	"context"
	"time"
)

// Of the holders of critical leases beside a flood, as singular controllers are. They
// extend more often than these would, so that a short time has as many extensions as its
// percentiles need.
const (
	criticalPrefix = "critical-"
	criticalLeases = 20
	criticalEvery  = 250 * time.Millisecond
)

// Of all holders beside a flood.
const (
	besideRamp  = 1000            // agents a second that begin
	besideQuiet = 5 * time.Second // in which what they take without a flood is found out
)

// holdBeside has critical leases, those whose holders are to fall silent, and what clients
// hold through the floods' own door, held beside a script that has floods: before the first,
// since who begins is refused first.
func (o *ordeal) holdBeside(ctx context.Context, script []Action) error {
	times, door := 0, ""
	for _, a := range script {
		if a.Do == "flood" && a.Times > 0 {
			times++
			door = floods[a.Work].door
		}
	}
	if times == 0 {
		return nil
	}
	if err := o.keepAt(ctx, door); err != nil {
		return err
	}
	o.critical = newGroup(ctx, o.run, group{prefix: criticalPrefix, every: criticalEvery, candidates: 1, perStream: criticalLeases, critical: true})
	o.mortal = o.mortals(ctx)
	for _, beside := range []struct {
		*fleet
		leases int
	}{{o.mortal, times * silentProcesses(o.victims.size()) * silentProcess}, {o.critical, criticalLeases}} {
		f := beside.fleet
		f.running.Go(func() { f.drive(&f.mu, f.now, &f.ended, f.perform) })
		if err := f.grow(ctx, beside.leases, besideRamp); err != nil {
			return err
		}
	}
	o.endStep(rampPhase) // none of it is in what the quiet time shows
	return sleep(ctx, min(besideQuiet, o.critical.ttl/6))
}

// doorsOf asks members where they have a door; "": the native one, which is known.
func (o *ordeal) doorsOf(ctx context.Context, door string, who []int) (map[int]string, error) {
	doors := map[int]string{}
	for _, i := range who {
		if door == "" {
			break
		}
		address, err := doorAddress(ctx, o.clients[i], o.urls[i], door)
		if err != nil {
			return nil, err
		}
		doors[i] = address
	}
	return doors, nil
}

// judgeBeside judges the holders beside the fleet: of critical leases all are held, and no
// extension was refused; what silent holders left, others hold; and what is held through
// other doors still is.
func (o *ordeal) judgeBeside(ctx context.Context) error {
	if f := o.mortal; f != nil {
		if err := f.judgeSilent(ctx); err != nil {
			return err
		}
		f.mu.Lock()
		o.fact("fell_silent", float64(f.fell))
		f.mu.Unlock()
	}
	if o.kept != nil {
		o.kept.judge()
	}
	if f := o.critical; f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		o.fact("critical_extensions_refused", float64(f.denied+f.unsure))
		if n := f.denied + f.unsure; n > 0 {
			f.check.Violate("%d extensions of critical leases were refused or not confirmed", n)
		}
		if f.holding < criticalLeases {
			f.check.Violate("%d of %d critical leases are held", f.holding, criticalLeases)
		}
		return f.failure
	}
	return nil
}

// closeBeside ends the holders beside the fleet.
func (o *ordeal) closeBeside() {
	for _, f := range []*fleet{o.mortal, o.critical} {
		if f != nil {
			f.close()
		}
	}
	if o.kept != nil {
		o.kept.close()
	}
}
