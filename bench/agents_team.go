package bench

import (
	"context"
	"sync"
)

// Agents that live in several processes (team.go). The parent changes what they follow,
// and counts; a process starts an agent when it is called to, and says what its agents
// were told.

type (
	// agentOrder names the unit of an agent that is to be started.
	agentOrder = struct {
		Unit    int  `json:"unit"`
		Members bool `json:"members,omitempty"` // it follows which units there are
	}
	// agentNews is what has happened in a process since it last said so: the units whose
	// agents were told of what, and those whose agents have begun, each as often as it was so.
	agentNews = struct {
		Told     [numTold][]int `json:"told"`
		Attached []int          `json:"attached,omitempty"`
	}
	// agentEars is who is to hear of an agent.
	agentEars struct {
		told     func(what int)
		attached func()
	}
)

// agentsTeam is the parent's end.
type agentsTeam struct {
	processes
	listening sync.WaitGroup

	mu   sync.Mutex // protects ears; held for an access
	ears map[int]agentEars
}

// newAgentsTeam starts n processes.
func newAgentsTeam(ctx context.Context, r *run, task *agentsTask, n int) (*agentsTeam, error) {
	all, err := r.startProcesses(n)
	if err != nil {
		return nil, err
	}
	if err := all.all(ctx, "Agents", func(int) any { return task }); err != nil {
		all.close()
		return nil, err
	}
	return listenTo(all), nil
}

// listenTo makes a team of processes, and listens to each until it ends.
func listenTo(all processes) *agentsTeam {
	t := &agentsTeam{processes: all, ears: map[int]agentEars{}}
	for _, p := range all {
		t.listening.Go(func() { t.listen(p) })
	}
	return t
}

func (t *agentsTeam) close() {
	t.processes.close()
	t.listening.Wait()
}

// start is [AgentSystem.Start]: agents stop with their process.
func (t *agentsTeam) start(ctx context.Context, unit int, members bool, told func(int), attached func()) (func(), error) {
	t.mu.Lock()
	t.ears[unit] = agentEars{told, attached}
	t.mu.Unlock()
	return func() {}, t.of(unit).call(ctx, "Start", &agentOrder{Unit: unit, Members: members}, nil)
}

// silence is [AgentSystem.Silence].
func (t *agentsTeam) silence(ctx context.Context, unit int) error {
	return t.of(unit).call(ctx, "Silence", unit, nil)
}

// of is the process that has a unit's agent.
func (t *agentsTeam) of(unit int) *process { return t.processes[unit%len(t.processes)] }

func (t *agentsTeam) earsOf(unit int) agentEars {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ears[unit]
}

// listen takes the news of a process until it ends, which its next call says.
func (t *agentsTeam) listen(p *process) {
	for {
		var news agentNews
		if p.call(context.Background(), "News", &struct{}{}, &news) != nil {
			return
		}
		for what, units := range news.Told {
			for _, unit := range units {
				t.earsOf(unit).told(what)
			}
		}
		for _, unit := range news.Attached {
			t.earsOf(unit).attached()
		}
	}
}

// Agents says how the agents of a process live.
func (w *workerProcess) Agents(task *agentsTask, _ *struct{}) (err error) {
	w.agents, err = newAgentsNative(task)
	return err
}

// Start starts one.
func (w *workerProcess) Start(a *agentOrder, _ *struct{}) error {
	stop, err := w.agents.start(w.ctx, a.Unit, a.Members,
		func(what int) { w.note(func() { w.news.Told[what] = append(w.news.Told[what], a.Unit) }) },
		func() { w.note(func() { w.news.Attached = append(w.news.Attached, a.Unit) }) })
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stops = append(w.stops, stop)
	}
	return err
}

// Silence has one fall silent.
func (w *workerProcess) Silence(unit int, _ *struct{}) error { return w.agents.silence(w.ctx, unit) }

func (w *workerProcess) note(what func()) {
	w.mu.Lock()
	what()
	w.mu.Unlock()
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// News waits until something has happened, and says what.
func (w *workerProcess) News(_ *struct{}, news *agentNews) error {
	select {
	case <-w.dirty:
	case <-w.ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	*news, w.news = w.news, agentNews{}
	return nil
}
