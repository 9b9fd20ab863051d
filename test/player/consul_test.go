package player

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// consulPlayer is a client of Consul: keys that the others play with too, sessions, services of
// its own.
type consulPlayer struct {
	*play
	number   int
	sessions []string
	service  serviceState
}

// serviceState is what is known of the player's own service.
type serviceState struct {
	tag   string // of the last registration that was answered; "": there is none
	doubt bool   // one that was not answered may have been done, or may yet be
}

// consulEntry is a key as Consul's clients are told of it.
type consulEntry struct {
	Key, Session                               string
	Value                                      []byte
	Flags, LockIndex, CreateIndex, ModifyIndex uint64
}

// is reports whether it is what a watch told; nil: nothing was there.
func (e *consulEntry) is(told *pb.KeyValue) bool {
	if e == nil || told == nil {
		return e == nil && told == nil
	}
	return e.ModifyIndex == told.ModifiedIndex && e.CreateIndex == told.CreatedIndex && e.LockIndex == told.LockIndex && e.Session == told.Session &&
		e.Flags == told.Flags && bytes.Equal(e.Value, told.Value)
}

// consulCall is a request, and what it was answered.
type consulCall struct {
	*call
	what   string
	status int
	body   []byte
}

const (
	consulWait       = "200ms"
	consulSessionTTL = "10s" // the shortest there is
)

// consulTries are what a client is told to try again; unknown says that it may have been done.
var consulTries = []string{"No cluster leader", "rate limit exceeded", "unknown", "deadline"}

func (p *consulPlayer) run(ctx context.Context) {
	defer p.leave()
	for step := 0; ctx.Err() == nil; step++ {
		d := p.table.dice(p.number, step)
		p.step(ctx, d, step)
		p.rest(ctx, d)
	}
}

// leave ends the player's sessions: all is quiet sooner.
func (p *consulPlayer) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), time.Second)
	defer cancel()
	for _, id := range p.sessions {
		p.ask(ctx, p.c.Members[0], "leaving", http.MethodPut, "/v1/session/destroy/"+id, "")
	}
}

// ask sends a request to a member. ok is false if the transport failed, which a member may do
// that is killed, or if the client was told to try again.
func (p *consulPlayer) ask(ctx context.Context, m *member, who, method, path, body string) (c *consulCall, ok bool) {
	c = &consulCall{call: p.book.begin(fmt.Sprintf("player %d, %s, Consul's client at %s", p.number, who, m.Name)), what: method + " " + path}
	life, scheme := m.life(), "http://"
	if p.c.tls != nil {
		scheme = "https://"
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, method, scheme+m.Consul+path, strings.NewReader(body))
	if err != nil {
		c.fail("%s: %v", c.what, err)
		return c, false
	}
	res, err := p.c.web.Do(req)
	if err == nil {
		c.status = res.StatusCode
		c.body, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	switch {
	case err != nil && limited.Err() != nil && ctx.Err() == nil && m.life() == life:
		c.fail("%s is not answered in %v: %v", c.what, patience, err)
	case err != nil:
		return c, false
	case bytes.Contains(c.body, []byte("internal error")):
		c.fail("%s is answered %d: %s", c.what, c.status, c.body)
	case c.status >= http.StatusInternalServerError || c.status == http.StatusTooManyRequests:
		if slices.ContainsFunc(consulTries, func(text string) bool { return bytes.Contains(bytes.ToLower(c.body), []byte(strings.ToLower(text))) }) {
			p.book.count("Consul's client told to try again")
			return c, false
		}
	}
	return c, true
}

func (c *consulCall) answered(status int, body string) bool {
	return c.status == status && strings.TrimSpace(string(c.body)) == body
}

func (c *consulCall) odd() { c.fail("%s is answered %d: %.200q", c.what, c.status, c.body) }

// decode reads the answer.
func (c *consulCall) decode(into any) bool {
	if err := json.Unmarshal(c.body, into); err != nil {
		c.fail("%s: %v: %.200q", c.what, err, c.body)
		return false
	}
	return true
}

func pathOf(key string) string {
	return "/v1/kv/" + strings.ReplaceAll(url.PathEscape(key), "%2F", "/")
}

func (p *consulPlayer) step(ctx context.Context, d dice, step int) {
	m, who := pick(d, p.c.Members), fmt.Sprintf("step %d", step)
	do := func(method, path, body string) (*consulCall, bool) { return p.ask(ctx, m, who, method, path, body) }
	switch d.IntN(16) {
	case 0, 1, 2:
		p.put(d, do)
	case 3:
		p.delete(d, do)
	case 4, 5:
		p.lock(d, do)
	case 6, 7:
		p.get(d, do)
	case 8, 9:
		p.list(d, do)
	case 10:
		p.txn(d, do)
	case 11:
		p.session(d, do)
	case 12, 13:
		p.serve(d, do)
	case 14:
		p.invalid(d, do)
	default:
		p.wait(d, do)
	}
}

// sends is how a step asks its member.
type sends = func(method, path, body string) (*consulCall, bool)

func (p *consulPlayer) put(d dice, do sends) {
	key, value, flags := pick(d, printableNames), pick(d, playedValues), d.Uint64()>>d.IntN(64)
	path, cas, index := pathOf(key)+"?flags="+strconv.FormatUint(flags, 10), d.oneIn(3), uint64(0)
	if cas {
		index = d.keyIndex(key)
		path += "&cas=" + strconv.FormatUint(index, 10)
	}
	c, ok := do(http.MethodPut, path, string(value))
	switch {
	case !ok:
	case c.answered(http.StatusOK, "true"):
		p.book.count("Consul: put")
		c.keyTruly(c.what+": done", key, func(now *pb.KeyValue) bool { return now != nil && now.Flags == flags && bytes.Equal(now.Value, value) })
		if cas {
			c.keyTruly(c.what+": its condition held", key, func(now *pb.KeyValue) bool { return now.GetModifiedIndex() == index })
		}
	case cas && c.answered(http.StatusOK, "false"):
		p.book.count("Consul: put refused")
		c.keyTruly(c.what+": its condition did not hold", key, func(now *pb.KeyValue) bool { return now.GetModifiedIndex() != index })
	default:
		c.odd()
	}
}

func (p *consulPlayer) delete(d dice, do sends) {
	key := pick(d, printableNames)
	path, cas, index := pathOf(key), d.oneIn(2), uint64(0)
	if cas {
		index = d.keyIndex(key)
		path += "?cas=" + strconv.FormatUint(index, 10)
	}
	c, ok := do(http.MethodDelete, path, "")
	switch {
	case !ok:
	case c.answered(http.StatusOK, "true"):
		p.book.count("Consul: delete")
		c.keyTruly(c.what+": it is gone", key, func(now *pb.KeyValue) bool { return now == nil })
	case cas && c.answered(http.StatusOK, "false"):
		c.keyTruly(c.what+": its condition did not hold", key, func(now *pb.KeyValue) bool { return now.GetModifiedIndex() != index })
	default:
		c.odd()
	}
}

// anySession is one of the player's own, or of those who use other doors.
func (p *consulPlayer) anySession(d dice) string {
	other := d.session()
	if len(p.sessions) == 0 || d.oneIn(4) {
		return other
	}
	return pick(d, p.sessions)
}

func (p *consulPlayer) lock(d dice, do sends) {
	key, value, id, verb := pick(d, printableNames), pick(d, playedValues), p.anySession(d), "acquire"
	if d.oneIn(3) {
		verb = "release"
	}
	c, ok := do(http.MethodPut, pathOf(key)+"?"+verb+"="+id, string(value))
	has := func(now *pb.KeyValue) bool { return now.GetSession() == id }
	switch {
	case !ok:
	case verb == "acquire" && c.answered(http.StatusOK, "true"):
		p.book.count("Consul: lock")
		c.keyTruly(c.what+": done", key, func(now *pb.KeyValue) bool { return has(now) && bytes.Equal(now.Value, value) })
	case verb == "release" && c.answered(http.StatusOK, "true"):
		p.book.count("Consul: unlock")
		c.keyTruly(c.what+": it was locked", key, has)
		c.keyTruly(c.what+": done", key, func(now *pb.KeyValue) bool { return now.GetSession() == "" && bytes.Equal(now.GetValue(), value) })
	case c.answered(http.StatusOK, "false"):
		p.book.count("Consul: lock refused")
		c.keyTruly(c.what+": it was another's", key, func(now *pb.KeyValue) bool { return !has(now) })
	case c.status == http.StatusInternalServerError && bytes.Contains(c.body, []byte("invalid session")):
		p.book.count("Consul: no session")
		p.sessions = slices.DeleteFunc(p.sessions, func(own string) bool { return own == id })
	default:
		c.odd()
	}
}

func (p *consulPlayer) get(d dice, do sends) {
	key, mode := pick(d, printableNames), pick(d, []string{"", "", "?consistent", "?stale"})
	c, ok := do(http.MethodGet, pathOf(key)+mode, "")
	if !ok {
		return
	}
	var e *consulEntry
	switch {
	case c.status == http.StatusOK:
		var all []*consulEntry
		if !c.decode(&all) {
			return
		}
		if len(all) != 1 || all[0].Key != key {
			c.odd()
			return
		}
		e = all[0]
	case c.status != http.StatusNotFound:
		c.odd()
		return
	}
	p.book.count("Consul: get")
	if mode == "?stale" {
		c.floor = 0 // any moment may be shown
	}
	c.keyTruly(fmt.Sprintf("%s: %+v", c.what, e), key, e.is)
}

// list reads what is below a prefix: all of one index.
func (p *consulPlayer) list(d dice, do sends) {
	prefix, names := pick(d, keyPrefixes), d.oneIn(2)
	path := pathOf(prefix) + "?recurse"
	if names {
		path = pathOf(prefix) + "?keys"
	}
	c, ok := do(http.MethodGet, path, "")
	if !ok {
		return
	}
	listed := map[string]*consulEntry{}
	switch {
	case c.status == http.StatusNotFound:
	case c.status != http.StatusOK:
		c.odd()
		return
	case names:
		var all []string
		if !c.decode(&all) {
			return
		}
		for _, key := range all {
			listed[key] = &consulEntry{Key: key}
		}
	default:
		var all []*consulEntry
		if !c.decode(&all) {
			return
		}
		for _, e := range all {
			listed[e.Key] = e
		}
	}
	p.book.count("Consul: list")
	c.later(func(w window) string {
		differ := func(index uint64) (string, bool) {
			for _, key := range w.keys.below(prefix) {
				told, known := w.keys.at(key, index)
				if !known {
					return "", false
				}
				if e := listed[key]; names && (e == nil) != (told == nil) || !names && !e.is(told) {
					return fmt.Sprintf("%q at index %d: %+v, and was %v", key, index, e, told), true
				}
			}
			return "", false
		}
		first, bad := differ(w.floor)
		if !bad {
			return ""
		}
		for _, key := range w.keys.below(prefix) {
			for _, m := range w.keys.between(key, w.floor, w.ceil) {
				if _, bad := differ(m.index); !bad {
					return ""
				}
			}
		}
		return fmt.Sprintf("%s: it never was so as a whole: %s", c.what, first)
	})
}

// txn stores two keys, if one has not moved, or reads.
func (p *consulPlayer) txn(d dice, do sends) {
	first, second, value := pick(d, keyNames[:3]), pick(d, keyNames[5:9]), []byte(strconv.FormatUint(d.Uint64(), 36))
	index := d.keyIndex(first)
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	encoded, _ := json.Marshal(value)
	c, ok := do(http.MethodPut, "/v1/txn", fmt.Sprintf(`[{"KV":{"Verb":"cas","Key":%s,"Value":%s,"Index":%d}},{"KV":{"Verb":"set","Key":%s,"Value":%s}},{"KV":{"Verb":"get","Key":%s}}]`,
		quoted(first), encoded, index, quoted(second), encoded, quoted(second)))
	if !ok {
		return
	}
	moved := func(now *pb.KeyValue) bool { return now.GetModifiedIndex() != index }
	if c.status == http.StatusConflict {
		p.book.count("Consul: transaction refused")
		c.keyTruly(c.what+": its condition did not hold", first, moved)
		return
	}
	var out struct{ Results []struct{ KV *consulEntry } }
	if c.status != http.StatusOK || !c.decode(&out) {
		c.odd()
		return
	}
	if len(out.Results) != 3 || out.Results[0].KV.ModifyIndex != out.Results[1].KV.ModifyIndex || !bytes.Equal(out.Results[2].KV.Value, value) {
		c.odd()
		return
	}
	p.book.count("Consul: transaction")
	at := out.Results[0].KV.ModifyIndex
	c.at(at)
	c.keyBefore(c.what, first, at, func(was *pb.KeyValue) bool { return was.GetModifiedIndex() == index })
	for _, key := range []string{first, second} {
		c.keyHappened(c.what, key, at, func(now *pb.KeyValue) bool { return now != nil && bytes.Equal(now.Value, value) })
	}
}

// session opens, renews and ends sessions.
func (p *consulPlayer) session(d dice, do sends) {
	if len(p.sessions) > 3 || len(p.sessions) > 0 && d.oneIn(2) {
		id := pick(d, p.sessions)
		if d.oneIn(2) {
			if c, ok := do(http.MethodPut, "/v1/session/renew/"+id, ""); ok && c.status != http.StatusOK && c.status != http.StatusNotFound {
				c.odd()
			}
			return
		}
		if c, ok := do(http.MethodPut, "/v1/session/destroy/"+id, ""); ok {
			if !c.answered(http.StatusOK, "true") {
				c.odd()
			}
			p.sessions = slices.DeleteFunc(p.sessions, func(own string) bool { return own == id })
		}
		return
	}
	behavior := pick(d, []string{"release", "delete"})
	c, ok := do(http.MethodPut, "/v1/session/create", fmt.Sprintf(`{"TTL":%q,"Behavior":%q,"LockDelay":"%dms"}`, consulSessionTTL, behavior, d.IntN(1000)))
	if !ok {
		return
	}
	var made struct{ ID string }
	if c.status != http.StatusOK || !c.decode(&made) {
		c.odd()
		return
	}
	if _, err := incumbent.ParseSessionID(made.ID); err != nil {
		c.odd()
	}
	p.book.count("Consul: session")
	p.sessions = append(p.sessions, made.ID)
}

// serve registers the player's own service, takes it away or reads it, at any member: a read
// shows what was answered before.
func (p *consulPlayer) serve(d dice, do sends) {
	name, s := fmt.Sprintf("played-%d", p.number), &p.service
	switch d.IntN(4) {
	case 0:
		tag := strconv.FormatUint(d.Uint64(), 36)
		s.doubt = true
		c, ok := do(http.MethodPut, "/v1/agent/service/register", fmt.Sprintf(`{"Name":%q,"Tags":[%q],"Check":{"TTL":"10s","Status":"passing"}}`, name, tag))
		if ok && c.answered(http.StatusOK, "") {
			*s = serviceState{tag: tag}
		} else if ok {
			c.odd()
		}
	case 1:
		s.doubt = true
		c, ok := do(http.MethodPut, "/v1/agent/service/deregister/"+name, "")
		if ok && (c.answered(http.StatusOK, "") || c.status == http.StatusNotFound) {
			*s = serviceState{}
		} else if ok {
			c.odd()
		}
	default:
		path := pick(d, []string{"/v1/health/service/" + name, "/v1/catalog/service/" + name + "?consistent"})
		c, ok := do(http.MethodGet, path, "")
		if !ok {
			return
		}
		var found []struct {
			ServiceTags []string
			Service     struct{ Tags []string }
		}
		if c.status != http.StatusOK || !c.decode(&found) {
			c.odd()
			return
		}
		p.book.count("Consul: service read")
		if s.doubt {
			return
		}
		var tags []string
		for _, f := range found {
			tags = append(tags, append(f.ServiceTags, f.Service.Tags...)...)
		}
		if want := strings.Fields(s.tag); !slices.Equal(tags, want) {
			c.fail("%s shows %q, and %q was registered", c.what, tags, want)
		}
	}
}

// wait reads and waits for another result.
func (p *consulPlayer) wait(d dice, do sends) {
	key := pick(d, printableNames)
	c, ok := do(http.MethodGet, fmt.Sprintf("%s?index=%d&wait=%s", pathOf(key), d.keyIndex(key), consulWait), "")
	if !ok {
		return
	}
	var e *consulEntry
	switch c.status {
	case http.StatusOK:
		var all []*consulEntry
		if !c.decode(&all) {
			return
		}
		e = all[0]
	case http.StatusNotFound:
	default:
		c.odd()
		return
	}
	p.book.count("Consul: wait")
	c.keyTruly(fmt.Sprintf("%s: %+v", c.what, e), key, e.is)
}

// invalid asks for what there is not, and must be refused.
func (p *consulPlayer) invalid(d dice, do sends) {
	x := pick(d, []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPut, "/v1/kv/", "v", http.StatusBadRequest},
		{http.MethodPut, "/v1/kv/k/a?cas=x", "v", http.StatusInternalServerError},
		{http.MethodPut, "/v1/kv/k/a?cas=1&acquire=x", "v", http.StatusBadRequest},
		{http.MethodPut, "/v1/kv/k/a?acquire=x", "v", http.StatusInternalServerError},
		{http.MethodPost, "/v1/kv/k/a", "v", http.StatusMethodNotAllowed},
		{http.MethodPut, "/v1/txn", "{", http.StatusBadRequest},
		{http.MethodPut, "/v1/txn", `[{"KV":{"Verb":"fly","Key":"k/a"}}]`, http.StatusConflict},
		{http.MethodPut, "/v1/session/create", `{"TTL":"1s"}`, http.StatusInternalServerError},
		{http.MethodPut, "/v1/session/create", `{"Behavior":"fly"}`, http.StatusInternalServerError},
		{http.MethodPut, "/v1/agent/service/register", `{"Name":""}`, http.StatusBadRequest},
		{http.MethodGet, "/v1/catalog/service/", "", http.StatusBadRequest},
		{http.MethodGet, "/v1/nothing", "", http.StatusNotFound},
		{http.MethodGet, "/v1/health/state/fly", "", http.StatusOK},
		{http.MethodGet, "/v1/kv/k/a?index=x", "", http.StatusBadRequest},
		{http.MethodGet, "/v1/catalog/nodes?filter=fly", "", http.StatusInternalServerError},
	})
	switch c, ok := do(x.method, x.path, x.body); {
	case !ok:
	case c.status != x.status:
		c.odd()
	default:
		p.book.count("Consul: invalid")
	}
}
