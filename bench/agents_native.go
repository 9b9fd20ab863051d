package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// agentsTask says how agents live: by the Go client, at which members, under what.
type agentsTask = struct {
	Servers    []string      `json:"servers"`
	Credential string        `json:"credential,omitempty"`
	CAFile     string        `json:"ca_file,omitempty"`
	CertFile   string        `json:"cert_file,omitempty"`
	KeyFile    string        `json:"key_file,omitempty"`
	Sources    int           `json:"sources,omitempty"`
	TTL        time.Duration `json:"ttl"`
	Tag        string        `json:"tag"` // what all keys begin with
}

func (r *run) agentsTask() *agentsTask {
	cfg, sources := r.opts.Client, 0
	if r.cluster != nil { // on this machine
		cfg, sources = r.cluster.Client(), r.sc.Sources
	}
	return &agentsTask{
		Servers: r.urls, Credential: cfg.Credential, CAFile: cfg.CAFile, CertFile: cfg.CertFile, KeyFile: cfg.KeyFile,
		Sources: sources, TTL: time.Duration(r.sc.TTL), Tag: newTag(),
	}
}

// clientOf is how to speak to one server, or to any of several.
func clientOf(t *agentsTask, servers ...string) client.Config {
	return client.Config{Servers: servers, Credential: t.Credential, CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile}
}

// newAgentsNative is Incumbent, by its Go client.
func newAgentsNative(t *agentsTask) (*agentsNative, error) {
	s := &agentsNative{ttl: t.TTL, tag: t.Tag, sessions: map[int]*client.Session{}}
	// Each agent begins with another member, and goes on with the next.
	n := len(t.Servers)
	for i := range n * max(1, t.Sources) {
		cfg := clientOf(t, append(slices.Clone(t.Servers[i%n:]), t.Servers[:i%n]...)...)
		cfg.Local = sourceOf(i/n, t.Sources)
		c, err := client.New(cfg)
		if err != nil {
			return nil, err
		}
		s.clients = append(s.clients, c)
	}
	return s, nil
}

func (s *agentsNative) system() AgentSystem {
	return AgentSystem{
		Add: s.add, Start: s.start, Charm: s.charm, Other: s.other, Relate: s.relate,
		Presence: s.presence, Silence: s.silence, Alive: s.alive,
	}
}

// txnOperations is how many operations a transaction may have.
const txnOperations = 10_000

type agentsNative struct {
	clients []*client.Client
	ttl     time.Duration
	tag     string // what all its keys begin with
	url     int

	mu       sync.Mutex              // protects sessions; held for an access
	sessions map[int]*client.Session // of the agents of this process, by unit
}

func (s *agentsNative) app() string          { return s.tag + "/app" }
func (s *agentsNative) units() string        { return s.tag + "/units/" }
func (s *agentsNative) name(unit int) string { return fmt.Sprintf("%s/unit/%06d", s.tag, unit) }
func (s *agentsNative) unit(unit int) string { return fmt.Sprintf("%s%06d", s.units(), unit) }
func (s *agentsNative) related(unit int) string {
	return fmt.Sprintf("%s/relations/%06d/", s.tag, unit)
}

func (s *agentsNative) add(ctx context.Context, first, n int) error {
	t := s.clients[first%len(s.clients)].Txn("")
	for i := range n {
		t.Put(s.unit(first+i), []byte(`{"status":"waiting"}`), client.IfIndex(0)).Expect(s.name(first + i))
	}
	_, err := t.Commit(ctx)
	return err
}

func (s *agentsNative) start(ctx context.Context, unit int, members bool, told func(int), attached func()) (func(), error) {
	follows := []struct {
		what int
		opts client.WatchKeysOptions
	}{
		{ToldCharm, client.WatchKeysOptions{Key: s.app(), Fields: []string{"value/charm/url"}}},
		{ToldUnit, client.WatchKeysOptions{Key: s.unit(unit)}},
		{ToldRelations, client.WatchKeysOptions{Key: s.related(unit), Prefix: true}},
		{ToldMembers, client.WatchKeysOptions{Key: s.units(), Prefix: true, Fields: []string{"membership"}}},
	}
	if !members {
		follows = follows[:len(follows)-1]
	}
	cfg := client.SessionConfig{TTL: s.ttl, Presence: client.Presence{Name: s.name(unit)}, Attached: beginsBy(told, attached)}
	begun := make(chan struct{}, len(follows))
	var caches []*client.KeyCache
	for _, f := range follows {
		cache := client.NewKeyCache("", f.opts)
		hearFrom(cache, func() { begun <- struct{}{} }, func() { told(f.what) })
		caches = append(caches, cache)
		cfg.Follow = append(cfg.Follow, cache)
	}
	session, err := s.clients[unit%len(s.clients)].Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for range follows {
		select {
		case <-begun:
		case <-session.Context().Done():
			return nil, context.Cause(session.Context())
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	for _, c := range caches {
		if err := c.Err(); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[unit] = session
	return session.Detach, nil
}

// beginsBy is what a session is to call each time that it has begun: only the first time may
// it have been opened by that.
func beginsBy(told func(int), attached func()) func(member string, opened bool) {
	again := false
	return func(_ string, opened bool) {
		if opened && again {
			told(ToldAnew)
		}
		again = true
		attached()
	}
}

// followed is a [client.KeyCache].
type followed interface {
	Notify(f func())
	Err() error
}

// hearFrom has begun called when a cache is heard of first, and told for each change of it
// after that. A cache that is followed no more says so in the same way, and that is no
// change: its watch has died, and whoever waits for it to be told is to notice.
func hearFrom(cache followed, begun, told func()) {
	first := true
	cache.Notify(func() {
		if first {
			first = false
			begun()
			return
		}
		go func() { // the cache may not be looked at by whom it calls
			if cache.Err() == nil {
				told()
			}
		}()
	})
}

// silence leaves the session of an agent open at the members, which hear of it no more.
func (s *agentsNative) silence(_ context.Context, unit int) error {
	s.mu.Lock()
	session := s.sessions[unit]
	delete(s.sessions, unit)
	s.mu.Unlock()
	if session == nil {
		return incumbent.Errorf(incumbent.NotFound, "no agent of unit %d lives here", unit)
	}
	session.Detach()
	return nil
}

func (s *agentsNative) alive(ctx context.Context, unit int) (bool, error) {
	list, _, err := s.clients[0].KV("").ListPresent(ctx, s.name(unit), "", 1)
	return len(list) == 1 && list[0].State == client.Alive, err
}

func (s *agentsNative) charm(ctx context.Context, value int) error {
	s.url = value
	return s.store(ctx, 0)
}

func (s *agentsNative) other(ctx context.Context, value int) error { return s.store(ctx, value) }

func (s *agentsNative) store(ctx context.Context, other int) error {
	_, err := s.clients[0].KV("").Put(ctx, s.app(), fmt.Appendf(nil, `{"charm":{"url":"ch:mysql-%d"},"constraints":%d}`, s.url, other))
	return err
}

func (s *agentsNative) relate(ctx context.Context, n int) error {
	for first := 0; first < n; first += txnOperations {
		t := s.clients[0].Txn("")
		for i := first; i < min(n, first+txnOperations); i++ {
			t.Put(s.related(i)+"0", []byte(`{"endpoint":"db"}`))
		}
		if _, err := t.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *agentsNative) presence(ctx context.Context, down func(string)) error {
	for c, err := range s.clients[0].KV("").WatchPresent(ctx, s.tag+"/unit/", 0) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if c.State == client.Down {
			down(c.Name)
		}
	}
	return nil
}
