package player

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// quiet waits until nothing is left that can expire, and compares: the answers of
// the round with what the watches told, the watches with one another, and the
// members with one another.
func (p *play) quiet(ctx context.Context) {
	until := p.patiently(ctx)
	var end uint64
	_ = until("an answer of every member", func() string { return p.everyoneAnswers(ctx) }) &&
		until("unpinned", func() string { return p.unpin(ctx) }) &&
		until("what has a ttl expired", func() string { return p.expired(ctx) }) &&
		until("alike on all members", func() string { return p.alike(ctx) }) &&
		until("a last change in each scope", func() (bad string) { end, bad = p.mark(ctx); return bad }) &&
		until("told by the watches", func() string { return p.told(end) }) &&
		until("alike in tables", func() string { return p.tablesAgree(ctx) }) &&
		until("states compared", func() string { return p.compared(ctx, end) }) &&
		p.settle(end)
}

// watched waits until all watches have begun.
func (p *play) watched(ctx context.Context) {
	until := p.patiently(ctx)
	var first uint64
	_ = until("a first change in each scope", func() (bad string) { first, bad = p.mark(ctx); return bad }) &&
		until("told by the watches", func() string { return p.told(first) })
}

// patiently returns what waits until something is done, which says what is missing.
// All waits together may take twice patience; it is false if one took too long.
func (p *play) patiently(ctx context.Context) func(what string, done func() string) bool {
	deadline := time.Now().Add(2 * patience)
	return func(what string, done func() string) bool {
		for last := ""; ; {
			switch {
			case ctx.Err() != nil:
				return false
			case time.Now().After(deadline):
				p.fail("still not %s: %s", what, last)
				return false
			}
			if last = done(); last == "" {
				return true
			}
			pause(ctx, lookEvery)
		}
	}
}

// settle compares and forgets.
func (p *play) settle(end uint64) bool {
	p.book.settle(p.lines, end)
	p.twoWatches(end)
	for _, t := range p.lines {
		t.forget()
	}
	p.second.forget()
	p.book.keys.forget()
	return !p.failed()
}

func (p *play) everyoneAnswers(ctx context.Context) string {
	for i := range p.callers {
		k := p.callers[i][0]
		c := p.book.begin("quiet, " + k.m.Name)
		_, e, ok := do(ctx, c, k.m, k.leases.List, &pb.ListRequest{CountOnly: true})
		if !ok || e != nil {
			return fmt.Sprintf("%s: %v %v", k.m.Name, e, c.err)
		}
	}
	return ""
}

// state is what a member answers of everything.
type state struct {
	index    uint64
	leases   []*pb.Lease
	sessions []*pb.Session
	keys     []*pb.KeyValue
}

// look reads everything from one member.
func (p *play) look(ctx context.Context, k *caller) (*state, string) {
	c := p.book.begin("quiet, " + k.m.Name)
	leases, e, ok := do(ctx, c, k.m, k.leases.List, &pb.ListRequest{Free: true, Limit: 10_000})
	if !ok || e != nil {
		return nil, fmt.Sprintf("list of %s: %v", k.m.Name, e)
	}
	c.at(leases.Index)
	sessions, e, ok := do(ctx, c, k.m, k.sessions.ListSessions, &pb.ListSessionsRequest{Limit: 10_000})
	if !ok || e != nil {
		return nil, fmt.Sprintf("sessions of %s: %v", k.m.Name, e)
	}
	keys, e, ok := do(ctx, c, k.m, k.keys.List, &pb.ListKeysRequest{Limit: 10_000})
	if !ok || e != nil {
		return nil, fmt.Sprintf("keys of %s: %v", k.m.Name, e)
	}
	if leases.More || sessions.More || keys.Next != "" || leases.Index != keys.Index || leases.Index != sessions.Index {
		return nil, fmt.Sprintf("%s answers at %d, then at %d and %d", k.m.Name, leases.Index, sessions.Index, keys.Index)
	}
	c.answeredList(&pb.ListKeysRequest{}, keys, nil, true)
	for _, l := range leases.Leases { // of the leader's clock, not of the state
		l.ExpiresInMs, l.LastExtendMsAgo, l.Extends = 0, 0, 0
	}
	for _, s := range sessions.Sessions {
		s.ExpiresInMs, s.Attached = 0, false
	}
	return &state{leases.Index, leases.Leases, sessions.Sessions, keys.Entries}, ""
}

// unpin takes all pins away and closes the sessions that live until then, for they
// would keep leases.
func (p *play) unpin(ctx context.Context) string {
	k := p.callers[0][0]
	now, bad := p.look(ctx, k)
	if bad != "" {
		return bad
	}
	c := p.book.begin("quiet")
	var ops []*pb.Operation
	for _, l := range now.leases {
		for _, entity := range l.Pins {
			ops = append(ops, &pb.Operation{Op: &pb.Operation_Unpin{Unpin: &pb.UnpinRequest{Name: l.Name, Entity: entity}}})
		}
	}
	for _, s := range now.sessions {
		if s.TtlMs == 0 {
			ops = append(ops, &pb.Operation{Op: &pb.Operation_CloseSession{CloseSession: &pb.CloseSessionRequest{Id: s.Id}}})
		}
	}
	if len(ops) == 0 {
		return ""
	}
	out, e, ok := do(ctx, c, k.m, k.leases.Batch, &pb.BatchRequest{Operations: ops})
	if !ok || e != nil {
		return fmt.Sprintf("batch: %v", e)
	}
	for i, r := range out.Results {
		c.operation(p.table, ops[i], r, valid)
	}
	return fmt.Sprintf("%d pins and sessions", len(ops))
}

// ownModels is the namespace of what members hold for themselves.
const ownModels = "incumbent"

// expired reports what is still held: nobody extends any more but members what is theirs.
func (p *play) expired(ctx context.Context) string {
	now, bad := p.look(ctx, p.callers[0][0])
	if bad != "" {
		return bad
	}
	for _, l := range now.leases {
		if l.Token != 0 && l.Name.GetNamespace() != ownModels {
			return fmt.Sprintf("%v", l)
		}
	}
	if len(now.sessions) > 0 {
		return fmt.Sprintf("%v", now.sessions[0])
	}
	for _, e := range now.keys {
		if e.Session != "" {
			p.fail("key %q is locked by session %s, and there is no session", e.Key, e.Session)
		}
	}
	return ""
}

// alike reports whether all members answer the same at the same index.
func (p *play) alike(ctx context.Context) string {
	var first *state
	for i := range p.callers {
		now, bad := p.look(ctx, p.callers[i][i%len(p.callers[i])])
		switch {
		case bad != "":
			return bad
		case first == nil:
			first = now
		case now.index != first.index:
			return fmt.Sprintf("indexes %d and %d", first.index, now.index)
		case !slices.EqualFunc(first.leases, now.leases, same) || !slices.EqualFunc(first.sessions, now.sessions, same) || !slices.EqualFunc(first.keys, now.keys, same):
			p.fail("at index %d %s answers %v and %s %v", now.index, p.c.Members[0].Name, first, p.c.Members[i].Name, now)
			return ""
		}
	}
	return ""
}

func same[M proto.Message](a, b M) bool { return proto.Equal(a, b) }

// mark changes something in each scope, so that all watches have something to tell
// of after everything else. It returns the index of the first of these changes.
func (p *play) mark(ctx context.Context) (first uint64, bad string) {
	k := p.callers[0][0]
	for _, s := range scopes {
		name := (&place{s, "mark"}).pb()
		c := p.book.begin("quiet")
		pin, e, ok := do(ctx, c, k.m, k.leases.Pin, &pb.PinRequest{Name: name, Entity: "end"})
		if !ok || e != nil {
			return 0, fmt.Sprintf("pin: %v", e)
		}
		if first == 0 {
			first = pin.Index
		}
		if _, e, ok := do(ctx, c, k.m, k.leases.Unpin, &pb.UnpinRequest{Name: name, Entity: "end"}); !ok || e != nil {
			return 0, fmt.Sprintf("unpin: %v", e)
		}
	}
	if _, e, ok := do(ctx, p.book.begin("quiet"), k.m, k.keys.Put, &pb.PutRequest{Key: "mark"}); !ok || e != nil {
		return 0, fmt.Sprintf("put: %v", e)
	}
	return first, ""
}

// told reports whether all watches have told everything up to an index.
func (p *play) told(end uint64) string {
	for _, t := range []*timeline{p.lines[native], p.lines[leaders], p.lines[singular], p.second} {
		if at := t.resume(); at < end {
			return fmt.Sprintf("watch of %v is at %d of %d", t.scope, at, end)
		}
	}
	if at := p.book.keys.resume(); at < end {
		return fmt.Sprintf("watch of keys is at %d of %d", at, end)
	}
	return ""
}

// compared reports whether the members have compared their states since an index.
func (p *play) compared(ctx context.Context, since uint64) string {
	if len(p.c.Members) == 1 {
		return ""
	}
	for i, m := range p.c.Members {
		text, err := metrics(ctx, m)
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(text, "\nincumbent_states_differ 0\n") {
			p.fail("the states of members differ, says %s", m.Name)
		}
		_, value, _ := strings.Cut(text, "\nincumbent_state_agreed_index ")
		value, _, _ = strings.Cut(value, "\n")
		if at, err := strconv.ParseFloat(value, 64); err != nil || at < float64(since) {
			k := p.callers[i][0] // writes a checkpoint
			_, _, _ = do(ctx, p.book.begin("quiet"), m, k.cluster.StateHash, &pb.StateHashRequest{})
			return fmt.Sprintf("%s has compared up to %q of %d", m.Name, value, since)
		}
	}
	return ""
}

func metrics(ctx context.Context, m *member) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := m.c.web.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

// twoWatches compares the two watches of one scope.
func (p *play) twoWatches(end uint64) {
	first, second := p.lines[native], p.second
	for _, name := range first.names() {
		from := max(first.since(), second.since())
		a, b := first.between(name, from, end), second.between(name, from, end)
		if !slices.EqualFunc(a, b, func(a, b moment) bool {
			return a.index == b.index && a.what == b.what && a.lease.Token == b.lease.Token && a.lease.Holder == b.lease.Holder
		}) {
			p.fail("two watches of %q differ: %d and %d changes up to index %d", name, len(a), len(b), end)
			return
		}
	}
}
