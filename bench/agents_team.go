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
	// agentNews is what has happened in a process since it last said so.
	agentNews = struct {
		Told     [numTold]int `json:"told"`
		Attached int          `json:"attached,omitempty"`
	}
)

// agentsTeam is the parent's end.
type agentsTeam struct {
	processes
	listen    sync.Once // with the first agent: all have the same told and attached
	listening sync.WaitGroup
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
	return &agentsTeam{processes: all}, nil
}

func (t *agentsTeam) close() {
	t.processes.close()
	t.listening.Wait()
}

// start is [AgentSystem.Start]: agents stop with their process.
func (t *agentsTeam) start(ctx context.Context, unit int, members bool, told func(int), attached func()) (func(), error) {
	t.listen.Do(func() {
		for _, p := range t.processes {
			t.listening.Go(func() { p.listen(told, attached) })
		}
	})
	p := t.processes[unit%len(t.processes)]
	return func() {}, p.call(ctx, "Start", &agentOrder{Unit: unit, Members: members}, nil)
}

// listen takes the news of a process until it ends, which its next call says.
func (p *process) listen(told func(int), attached func()) {
	for {
		var news agentNews
		if p.call(context.Background(), "News", &struct{}{}, &news) != nil {
			return
		}
		for what, n := range news.Told {
			for range n {
				told(what)
			}
		}
		for range news.Attached {
			attached()
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
		func(what int) { w.note(func() { w.news.Told[what]++ }) },
		func() { w.note(func() { w.news.Attached++ }) })
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stops = append(w.stops, stop)
	}
	return err
}

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
