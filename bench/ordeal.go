package bench

import (
	"cmp"
	"context"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// backTimeout is how long a member that was started again may take to serve.
const backTimeout = 5 * time.Minute

// backEvery is how often it is asked whether it does.
const backEvery = 50 * time.Millisecond

// quietPhase is the part of a step before its fault.
const quietPhase = "before the fault"

// ordeal plays a scenario's actions on the servers while the fleet goes on, and
// has it judge what it came to.
type ordeal struct {
	*run
	victims  victims
	terms    terms
	servers  Members       // nil if the servers can only be sent signals
	settle   time.Duration // from the last action to the judgement; 0: at least two ttls
	last     []int         // whom the last action was done to
	struck   bool
	peak     float64            // operations a second that the servers carry of a flood's; 0: not known yet
	best     float64            // the most of them that they have carried so far, in any flood
	rates    map[string]float64 // of floods, by name
	catching sync.WaitGroup     // those who wait for members to catch up

	critical *fleet // holders of critical leases, beside floods; nil: none are
	mortal   *fleet // holders of which some fall silent in each flood, and who waits for their leases; nil: as above
	kept     *kept  // clients that hold something through the floods' door; nil: as above, or it has none
}

// victims is a fleet whose servers are struck.
type victims interface {
	size() int // leases
	flush()    // have what is recorded elsewhere here
	strike()   // right before the first action: note what is held
	// disconnect ends all connections to these members at once. Those who had them come back.
	disconnect(members []int)
	judge() error // at the end: compare, note facts and violations
}

// event is an action or its end.
type event struct {
	at time.Duration // since the ordeal began
	do func(ctx context.Context) error
}

// playFaults plays the scenario's actions.
func (o *ordeal) playFaults(ctx context.Context, script []Action) error {
	if o.cluster == nil {
		return incumbent.Errorf(incumbent.Invalid, "fault %s needs servers that this run starts: --members local:N", o.sc.Fault)
	}
	o.servers, _ = o.cluster.(Members)
	if err := o.terms.learn(ctx, o.clients); err != nil {
		return err
	}
	defer o.closeBeside()
	if err := o.holdBeside(ctx, script); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { o.terms.watch(watching, o.clients) })
	err := o.play(ctx, script)
	stop()
	watcher.Wait()
	o.catching.Wait()
	if err != nil {
		return err
	}
	if err := o.judgeBeside(ctx); err != nil {
		return err
	}
	if o.peak > 0 { // after a flood
		o.notePeak()
		if err := o.awaitMembers(ctx, membersTimeout); err != nil {
			return err
		}
		o.noteOrder(ctx)
	}
	return o.judge()
}

// play does what the script says, one after the other: what an action or its end takes, as a flood's
// does until its last clients are answered, moves those behind it that are due meanwhile.
func (o *ordeal) play(ctx context.Context, script []Action) error {
	began := o.now()
	var events []event
	var undo []func()
	defer func() {
		for _, u := range undo {
			u() // whatever lasts to the end, or was not undone in time: the run was interrupted
		}
	}()
	for _, a := range script {
		over := sync.OnceFunc(func() {})
		events = append(events, event{at: time.Duration(a.After), do: func(ctx context.Context) (err error) {
			end, err := o.act(ctx, a)
			if end != nil {
				over = sync.OnceFunc(end)
				undo = append(undo, over)
			}
			return err
		}})
		if a.For > 0 {
			events = append(events, event{at: time.Duration(a.After + a.For), do: func(context.Context) error {
				over()
				o.setPhase("after %s", a.Do)
				return nil
			}})
		}
	}
	sort.SliceStable(events, func(i, j int) bool { return events[i].at < events[j].at })
	for _, e := range events {
		if err := sleep(ctx, began+e.at-o.now()); err != nil {
			return err
		}
		o.noteLate(o.now() - began - e.at)
		if err := e.do(ctx); err != nil {
			return err
		}
	}
	// Whoever was to lose a lease by this would have by then.
	return sleep(ctx, cmp.Or(o.settle, max(2*time.Duration(o.sc.TTL), time.Duration(o.sc.Settle))))
}

// noteLate notes how much later than planned, at most, an action of this run or its end began: what
// is measured from some time after that on is measured from so much later on.
func (o *ordeal) noteLate(late time.Duration) {
	const name = "actions_late_max_seconds"
	o.fact(name, max(late.Seconds(), o.noted(name)))
}

// noteCaughtUp waits until all members have applied what is committed, and notes how long
// after some moment that was.
func (o *ordeal) noteCaughtUp(ctx context.Context, since time.Duration) {
	missing, err := o.missingMembers(ctx, caughtUpIn)
	switch {
	case err != nil:
	case len(missing) > 0:
		o.check.Violate("%v after the flood: %s", caughtUpIn, strings.Join(missing, "; "))
	default:
		o.fact("caught_up_seconds", (o.now() - since).Seconds())
	}
}

// noteOrder notes how much the members have let in although a lane that is refused later
// refused (guarantee 40), as they count it themselves. Nothing is noted unless all say it.
func (o *ordeal) noteOrder(ctx context.Context) {
	sum := 0.0
	for _, url := range o.urls {
		n, ok := seriesOf(ctx, url, "incumbent_admission_disorder_total")
		if !ok {
			return
		}
		sum += n
	}
	o.fact("admission_disorder", sum)
}

// begin has the fleet note what is held, and closes the figures of the quiet time,
// right before the first action.
func (o *ordeal) begin() {
	if o.struck {
		return
	}
	o.struck = true
	o.endStep(quietPhase)
	o.victims.strike()
}

// endStep closes the figures of what was played since the last step, under a name.
func (o *ordeal) endStep(phase string) {
	o.victims.flush()
	o.step(o.victims.size(), phase)
}

// judge closes the figures of the fault, and has the fleet compare.
func (o *ordeal) judge() error {
	o.endStep("fault " + o.sc.Fault)
	elections, moves := o.terms.counts()
	o.fact("elections", float64(elections))
	o.fact("leadership_moves", float64(moves))
	o.noteEffect()
	return o.victims.judge()
}

// act does one action. What it returns undoes it; nil: nothing can.
func (o *ordeal) act(ctx context.Context, a Action) (undo func(), err error) {
	o.setPhase("%s %s", a.Do, a.Member)
	if a.Do == "saturate" {
		o.begin()
		return burn(), nil
	}
	who, err := o.whom(ctx, a)
	if err != nil {
		return nil, err
	}
	o.last = who
	o.begin()
	switch a.Do {
	case "stop":
		return o.stop(who)
	case "strangers":
		return o.strangers(ctx, a, who)
	case "flood":
		return o.flood(ctx, a, who)
	case "disconnect":
		o.victims.disconnect(who)
		return nil, nil
	}
	if o.servers == nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "%s needs a cluster that this run starts", a.Do)
	}
	for _, i := range who {
		end, err := o.actOn(ctx, a, i)
		if err != nil {
			return undo, err
		}
		if before := undo; end != nil {
			undo = func() {
				if before != nil {
					before()
				}
				end()
			}
		}
	}
	if a.Do == "slow-disk" { // getting there may have moved the leadership
		if err := o.terms.learn(ctx, o.clients); err != nil {
			return undo, err
		}
		o.terms.restart()
	}
	return undo, nil
}

// actOn does an action to one member.
func (o *ordeal) actOn(ctx context.Context, a Action, i int) (undo func(), err error) {
	switch a.Do {
	case "kill":
		return nil, o.servers.Kill(i, syscall.SIGKILL)
	case "cut":
		return func() { _ = o.servers.Cut(i, false, false) }, o.servers.Cut(i, a.Way != "in", a.Way != "out") //nolint:nilerr // it was cut before, so it can be joined
	case "restart":
		return nil, o.back(ctx, i, Start{}, syscall.SIGKILL)
	case "wipe":
		return nil, o.back(ctx, i, Start{Wiped: true}, syscall.SIGKILL)
	case "slow-disk":
		if err := o.back(ctx, i, Start{SyncDelay: time.Duration(a.Delay)}, syscall.SIGTERM); err != nil || a.Member != "leader" {
			return nil, err
		}
		return nil, o.servers.Lead(ctx, i)
	}
	return nil, incumbent.Errorf(incumbent.Internal, "no action %s", a.Do)
}

func (o *ordeal) stop(who []int) (undo func(), err error) {
	for _, i := range who {
		if err := o.cluster.Signal(i, syscall.SIGSTOP); err != nil {
			return nil, err
		}
	}
	return func() {
		for _, i := range who {
			_ = o.cluster.Signal(i, syscall.SIGCONT) // one that has ended needs none
		}
	}, nil
}

// back starts a member again and waits until it serves in its role.
func (o *ordeal) back(ctx context.Context, i int, how Start, sig syscall.Signal) error {
	if err := o.servers.Kill(i, sig); err != nil {
		return err
	}
	began := o.now()
	if err := o.servers.Start(ctx, i, how); err != nil {
		return err
	}
	name := o.cluster.Servers()[i].Name
	for o.now()-began < backTimeout {
		if standing(ctx, o.clients[i], 0) == "" {
			o.fact("rejoin_seconds", (o.now() - began).Seconds())
			return nil
		}
		if pid := o.cluster.Servers()[i].PID; pid != 0 && !alive(pid) {
			return incumbent.Errorf(incumbent.Unavailable, "%s was started again and has ended: %s", name, o.said(i))
		}
		if err := sleep(ctx, backEvery); err != nil {
			return err
		}
	}
	return incumbent.Errorf(incumbent.DeadlineExceeded, "%s does not serve %v after it was started again", name, backTimeout)
}

// said is the end of a member's log, where there is one.
func (o *ordeal) said(i int) string {
	if l, ok := o.servers.(*Local); ok {
		return l.members[i].child.said()
	}
	return "its log is not here"
}

// whom resolves an action's member now.
func (o *ordeal) whom(ctx context.Context, a Action) ([]int, error) {
	servers := o.cluster.Servers()
	switch a.Member {
	case "last":
		return o.last, nil
	case "all":
		all := make([]int, len(servers))
		for i := range all {
			all[i] = i
		}
		return all, nil
	}
	o.terms.ask(ctx, o.clients)
	lead := o.terms.lead()
	var leader, followers []int
	for i, s := range servers {
		if s.Name == lead {
			leader = append(leader, i)
		} else {
			followers = append(followers, i)
		}
	}
	switch n := max(1, a.Count); {
	case len(leader) == 0:
		return nil, incumbent.Errorf(incumbent.Unavailable, "no member of the cluster says who leads")
	case a.Member == "leader":
		return leader, nil
	case len(followers) < n:
		return nil, incumbent.Errorf(incumbent.Invalid, "%d followers are to be struck, there are %d", n, len(followers))
	default:
		return followers[:n], nil
	}
}
