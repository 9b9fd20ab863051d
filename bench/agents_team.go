package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"github.com/incumbent-dev/incumbent"
)

// Where one process may not open a connection for each agent, agents live in several, as
// Juju's units do (team.go). The parent changes what they follow, and counts; a process
// starts an agent when it is ordered to, and says what its agents were told.

// agentOrder has a process start the agent of a unit.
type agentOrder struct {
	Unit    int  `json:"unit"`
	Members bool `json:"members,omitempty"` // it follows which units there are
}

// agentNews is what has happened in a process since it last said so.
type agentNews struct {
	Started  []agentStarted `json:"started,omitempty"`
	Told     [numTold]int   `json:"told"`
	Attached int            `json:"attached,omitempty"`
}

type agentStarted struct {
	Unit  int    `json:"unit"`
	Error string `json:"error,omitempty"`
}

// agentsTeam is the parent's end.
type agentsTeam struct {
	mates []*agentMate
}

// agentMate is one process.
type agentMate struct {
	*mate
	writing sync.Mutex // one order at a time

	mu       sync.Mutex // protects the rest; held for field accesses
	starting map[int]chan error
	told     func(what int)
	attached func()
	failed   error // it has ended
}

// newAgentsTeam starts n processes.
func newAgentsTeam(r *run, task *agentsTask, n int) (*agentsTeam, error) {
	if err := r.needWorkers(n); err != nil {
		return nil, err
	}
	t := &agentsTeam{}
	for i := range n {
		m := &agentMate{starting: make(map[int]chan error)}
		w, err := r.startMate(i, func(_ *mate, out io.Reader) error { return m.listen(out) })
		if err == nil {
			m.mate = w
			t.mates = append(t.mates, m)
			err = m.order(&order{Agents: task})
		}
		if err != nil {
			t.close()
			return nil, err
		}
	}
	return t, nil
}

func (t *agentsTeam) close() {
	for _, m := range t.mates {
		m.close()
	}
}

// start is [AgentSystem.Start]: agents stop with their process. All have the same told
// and attached.
func (t *agentsTeam) start(ctx context.Context, unit int, members bool, told func(int), attached func()) (func(), error) {
	m, done := t.mates[unit%len(t.mates)], make(chan error, 1)
	m.mu.Lock()
	m.told, m.attached = told, attached
	err := m.failed
	if err == nil {
		m.starting[unit] = done
	}
	m.mu.Unlock()
	if err == nil {
		err = m.order(&order{Agent: &agentOrder{Unit: unit, Members: members}})
	}
	if err != nil {
		return nil, err
	}
	select {
	case err := <-done:
		return func() {}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *agentMate) order(o *order) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	m.writing.Lock()
	defer m.writing.Unlock()
	_, err = m.in.Write(append(text, '\n'))
	return err
}

// listen takes what the process says until it ends. Then nobody waits for it any more.
func (m *agentMate) listen(out io.Reader) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, mostReport)
	for lines.Scan() {
		var news agentNews
		if err := json.Unmarshal(lines.Bytes(), &news); err != nil {
			return m.end(err)
		}
		m.hear(&news)
	}
	return m.end(lines.Err())
}

func (m *agentMate) end(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failed = errors.Join(incumbent.Errorf(incumbent.Unavailable, "a process of agents has ended"), err)
	for unit, done := range m.starting {
		done <- m.failed
		delete(m.starting, unit)
	}
	return err
}

func (m *agentMate) hear(news *agentNews) {
	m.mu.Lock()
	told, attached := m.told, m.attached
	for _, s := range news.Started {
		var err error
		if s.Error != "" {
			err = incumbent.Errorf(incumbent.Unavailable, "agent %d: %s", s.Unit, s.Error)
		}
		if done := m.starting[s.Unit]; done != nil {
			done <- err
			delete(m.starting, s.Unit)
		}
	}
	m.mu.Unlock()
	for what, n := range news.Told {
		for range n {
			told(what)
		}
	}
	for range news.Attached {
		attached()
	}
}

// agentsWorker is the process's end.
type agentsWorker struct {
	dirty chan struct{} // there is news

	mu    sync.Mutex // protects the rest; held for field accesses
	news  agentNews
	stops []func()
}

// workAgents starts the agents that orders name, until these end.
func workAgents(ctx context.Context, task *agentsTask, orders <-chan *order, out io.Writer) error {
	native, err := newAgentsNative(task)
	if err != nil {
		return err
	}
	w := &agentsWorker{dirty: make(chan struct{}, 1)}
	var telling, starts sync.WaitGroup
	telling.Go(func() { w.tell(ctx, json.NewEncoder(out)) })
	for o := range orders {
		if o.Agent == nil {
			continue
		}
		starts.Go(func() { w.start(ctx, native, o.Agent) })
	}
	starts.Wait()
	telling.Wait()
	for _, stop := range w.stops {
		stop()
	}
	return nil
}

func (w *agentsWorker) start(ctx context.Context, native *agentsNative, a *agentOrder) {
	stop, err := native.start(ctx, a.Unit, a.Members,
		func(what int) { w.note(func() { w.news.Told[what]++ }) },
		func() { w.note(func() { w.news.Attached++ }) })
	w.note(func() {
		s := agentStarted{Unit: a.Unit}
		if err != nil {
			s.Error = err.Error()
		} else {
			w.stops = append(w.stops, stop)
		}
		w.news.Started = append(w.news.Started, s)
	})
}

func (w *agentsWorker) note(what func()) {
	w.mu.Lock()
	what()
	w.mu.Unlock()
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// tell says what is new as often as it is read, until the orders end or nobody reads.
func (w *agentsWorker) tell(ctx context.Context, out *json.Encoder) {
	for {
		select {
		case <-w.dirty:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		news := w.news
		w.news = agentNews{}
		w.mu.Unlock()
		if out.Encode(&news) != nil {
			return
		}
	}
}
