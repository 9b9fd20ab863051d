package consul

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
)

// request is one request while it is served. Its fields belong to whoever serves it:
// first the goroutine that runs the endpoint, then the callback that goes on.
type request struct {
	door   *Door
	conn   *conn
	method string
	path   string     // decoded
	rest   string     // of the path, behind an endpoint's that ends in a slash
	query  url.Values // parsed once
	header http.Header
	body   []byte
	who    *caller
	opts   options
	call   calls.Call

	act       action
	head      *http.Request // until it is known who asks
	began     time.Time
	asked     time.Time // since then it waits for a leader: began, or when it was run again
	keepAlive bool
	http10    bool
	size      int         // bytes of its line, of which its path and options are parts
	bare      bool        // the answer has no headers that only endpoints have
	came      int         // bytes of its head and body
	extra     []string    // names and values of more headers of the answer
	judged    uint64      // rechecks of the door when it was judged
	absent    bool        // it asks for what no cluster of ours has, or for what cannot be read
	spent     int         // bytes of it that are to be taken out of the pace of its connection
	done      atomic.Bool // it is answered, or nobody waits for that
	leaving   atomic.Bool // the connection ends with the answer

	mu      sync.Mutex // guards the rest; held to change it
	place   admit.Place
	blocked *blocked  // a read that waits; nil: none does
	refused *heldBack // a refusal that is told later; nil: none is
	over    bool      // nobody waits for the answer any more
	gone    func()    // is told of that, and if who asked is not known any more; nil: nobody is
	endless func()    // ends an answer that has no end of its own; nil: it has
}

// newRequest returns a request that is there whole. The body of one that reads means
// nothing, and would stay as long as that waits.
func (d *Door) newRequest(c *conn, in *incoming, body []byte) *request {
	head, came := in.head, in.lines+len(body)
	if reads(head.Method) {
		body = nil
	}
	now := d.now()
	return &request{
		door: d, conn: c, method: head.Method, path: head.URL.Path, header: head.Header, body: body, head: head, began: now, asked: now,
		size: len(head.RequestURI), came: came, keepAlive: !head.Close, http10: !head.ProtoAtLeast(1, 1),
	}
}

// reads reports whether a method only reads.
func reads(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// later goes on with the request on a goroutine of the door's: a change on one that does
// not have thousands of reads before it, which come back with what the last change told.
func (r *request) later(job func()) {
	if reads(r.method) {
		r.door.work.Put(job)
	} else {
		r.door.changes.Put(job)
	}
}

// serve finds who is asked, and by whom, and has the endpoint answer.
func (r *request) serve() {
	d := r.door
	if r.unprintable() || r.cleaned() {
		return
	}
	act, rest, found := d.routes.find(r.path)
	switch {
	case !found:
		r.lost()
		return
	case !r.readQuery():
		return
	case r.method == http.MethodOptions:
		r.setHeader("Allow", strings.Join(act.allowed, ","))
		r.nothing()
		return
	}
	if r.act, found = act.methods[r.method]; !found {
		r.setHeader("Allow", strings.Join(act.allowed, ","))
		r.fail(http.StatusMethodNotAllowed, "method %s not allowed", r.method)
		return
	}
	r.rest, r.call = rest, r.act.call
	r.judged = d.rechecks.Load()
	if !r.identify() || !r.parse() || !r.admit() {
		return
	}
	r.run()
}

// readQuery reads the parameters. If one of them cannot be read the request has been answered,
// as Consul answers it: to go on without that one could write what a condition forbids.
func (r *request) readQuery() bool {
	var err error
	if r.query, err = url.ParseQuery(r.head.URL.RawQuery); err != nil {
		r.absent = true
		r.fail(http.StatusInternalServerError, "")
	}
	return err == nil
}

// refusedEarly answers a request whose body has not come whole, if whatever that says it
// would be refused: for who sends it, for what its head says, or by its lane. If not, it is
// looked at again once it is there.
func (r *request) refusedEarly() bool {
	if r.unprintable() {
		return true
	}
	d := r.door
	act, rest, found := d.routes.find(r.path)
	if !found || d.lanes.Controller == nil {
		return false
	}
	if r.act, found = act.methods[r.method]; !found {
		return false
	}
	r.rest, r.call = rest, r.act.call
	if !r.readQuery() || !r.identify() || !r.parse() {
		return true
	}
	lane := r.lane()
	if lane == calls.NoLane {
		return false
	}
	err := d.lanes.Refuses(r.work(), []admit.Lane{lane})
	if err != nil {
		r.refuse(lane, err)
	}
	return err != nil
}

// lane is that of the call as its head says: a read of keys which lists them is of the lane of lists,
// a lock is a claim, and who comes back with what the last poll told has begun to watch before.
func (r *request) lane() admit.Lane {
	stale := r.opts.stale || r.opts.cached
	switch {
	case r.returns():
		return admit.Small
	case r.opts.blocking():
		return admit.Watches
	case r.call == calls.ConsulWriteKey:
		return r.laneOfWrite()
	case r.call == calls.ConsulReadKeys && r.listsKeys():
		return calls.ListKeys.LaneOfRead(stale)
	default:
		return r.call.LaneOfRead(stale)
	}
}

// lost answers a path that nobody serves, with nothing of what endpoints say.
func (r *request) lost() {
	r.bare = true
	switch {
	case r.path == "/":
		r.fail(http.StatusOK, "incumbent: Consul's API is below /v1/")
	case !strings.HasPrefix(r.path, "/v1/"):
		r.fail(http.StatusNotFound, "Invalid URL path: if attempting to use the HTTP API, ensure the path starts with '/v1/'\n")
	default:
		r.fail(http.StatusNotFound, "Invalid URL path: not a recognized HTTP API endpoint\n")
	}
}

// run judges by the policies of now, and runs the endpoint: again, where they have
// changed while a read waited.
func (r *request) run() {
	r.who.judge()
	if err := r.call.Allowed(r.who.rights); err != nil {
		r.denied(r.call.Action(), nil, r.path, err)
		return
	}
	r.act.serve(r.door, r)
}

// admit takes a place in the lane of the call.
func (r *request) admit() bool {
	lane := r.lane()
	if lane == calls.NoLane {
		return true
	}
	if r.opts.blocking() {
		// To have it wait costs nothing, and how long it stays says nothing of how long what the
		// lane admits does: it keeps no place. Thousands of those whom the last change has told,
		// who are back at once, would fill the lane.
		err := r.door.lanes.Passes(r.work(), lane)
		if err != nil {
			r.refuse(lane, err)
		}
		return err == nil
	}
	p, err := r.door.lanes.Enter(r.work(), lane, r.cost())
	if err != nil {
		r.refuse(lane, err)
		return false
	}
	r.mu.Lock()
	over := r.over
	if !over {
		r.place = p
	}
	r.mu.Unlock()
	if over {
		p.Drop()
	}
	return !over
}

// work says for whom it is, and of what: of a list or a service that many ask for, or that
// many change.
func (r *request) work() admit.Who {
	return admit.Who{Client: admit.ClientOf(r.who.principal.Name, r.who.address), Group: r.group()}
}

// group is that of what the path names; of a change whose path names nothing, that of the
// first name in its body. Not told apart is what has none, or of which the body has not come.
func (r *request) group() admit.Key {
	if reads(r.method) || r.rest != "" {
		return admit.KeyOf(r.path)
	}
	name := nameIn(r.body)
	if len(name) == 0 {
		return 0
	}
	return admit.KeyOf(r.path).Of(string(name))
}

// nameIn is the first name of a service, a check, a session or a key in a body, which it
// does not decode: a body that is written oddly shares the room of another name, no more.
func nameIn(body []byte) []byte {
	quote := []byte{'"'}
	for len(body) > 0 {
		_, rest, _ := bytes.Cut(body, quote)
		field, rest, _ := bytes.Cut(rest, quote)
		body = rest
		if !bytes.EqualFold(field, []byte("Name")) && !bytes.EqualFold(field, []byte("Service")) && !bytes.EqualFold(field, []byte("Key")) {
			continue
		}
		if value, is := bytes.CutPrefix(bytes.TrimLeft(rest, ": \t\r\n"), quote); is {
			name, _, _ := bytes.Cut(value, quote)
			return name
		}
	}
	return nil
}

// cost is as how much the lane counts the request: a transaction as its operations, and
// one that has more than it may, for which it is refused once it is decoded, as no more.
func (r *request) cost() int {
	if r.call != calls.ConsulTxn {
		return 1
	}
	return min(r.operations(), maxTxnOps)
}

// operations are those of a transaction, each of which is an object within another. Braces
// in its texts make it seem more, nothing less.
func (r *request) operations() int {
	return max(1, bytes.Count(r.body, []byte{'{'})/2)
}

// giveBack gives the place in the lane back. idle: what was asked for was nothing, or denied.
func (r *request) giveBack(idle bool) {
	r.mu.Lock()
	p := r.place
	r.place = admit.Place{}
	r.mu.Unlock()
	if idle {
		p.Drop()
		return
	}
	p.Leave()
}

// setHeader adds a header to the answer.
func (r *request) setHeader(name, value string) { r.extra = append(r.extra, name, value) }

// fail answers with an error's text.
func (r *request) fail(status int, format string, args ...any) {
	text := format
	if len(args) > 0 {
		text = fmt.Sprintf(format, args...)
	}
	r.bytes(status, "text/plain; charset=utf-8", []byte(text))
}

// failFor answers with an error of ours as Consul's clients know it.
func (r *request) failFor(err error) {
	status, text := errorReply(err)
	var e *incumbent.Error
	if errors.As(err, &e) && e.RetryAfter > 0 && status == http.StatusTooManyRequests {
		r.setHeader("Retry-After", r.door.retryAfter(e.RetryAfter))
	}
	if status == http.StatusTooManyRequests && r.leaderIsBusy() {
		status, text = http.StatusServiceUnavailable, textLeaderBusy
	}
	r.bytes(status, "text/plain; charset=utf-8", []byte(text))
}

// leaderIsBusy reports whether what was refused is what any member has the leader do, and
// this one is that: elsewhere it would come to the same.
func (r *request) leaderIsBusy() bool {
	n := r.door.engine.Node()
	leader, _ := n.Leader()
	return !reads(r.method) && leader == n.Status().Member
}

// denied answers that the caller may not do something, which is counted.
func (r *request) denied(a auth.Action, to *auth.Resource, name string, err error) {
	r.failFor(r.refusal(a, to, name, err))
}

// refusal counts that the caller may not do something, and returns what it is told of
// that. What the request does not name is not named either: it was found by something
// else, as a service is by its check.
func (r *request) refusal(a auth.Action, to *auth.Resource, name string, err error) error {
	r.door.noteDenied(r.who, a, to, name)
	if !r.names(name) {
		return incumbent.Errorf(incumbent.Denied, "no policy allows %v", a)
	}
	return err
}

// names reports whether the request has a name in it, in any case.
func (r *request) names(name string) bool {
	name = incumbent.Fold(name)
	in := func(text string) bool { return strings.Contains(incumbent.Fold(text), name) }
	for _, values := range r.query {
		if slices.ContainsFunc(values, in) {
			return true
		}
	}
	return in(r.path) || in(string(r.body))
}

// allow reports whether the caller may do an action to something of the door's
// namespace that has a name; whole: to all whose names begin so. If not it has been
// answered.
func (r *request) allow(a auth.Action, name string, whole bool) bool {
	to := auth.Resource{Name: r.door.named(name), Whole: whole}
	err := auth.Authorize(r.who.rights, a, to)
	if err != nil {
		refused := to // so that what is permitted allocates nothing
		r.denied(a, &refused, name, err)
	}
	return err == nil
}

// may reports whether the caller may do an action to something of the door's namespace. It
// neither answers nor counts.
func (r *request) may(a auth.Action, name string) bool {
	return auth.Authorize(r.who.rights, a, auth.Resource{Name: r.door.named(name)}) == nil
}

// json answers with a value of this answer alone.
func (r *request) json(status int, v any) {
	b, err := r.encode(v)
	if err != nil {
		r.failFor(incumbent.Errorf(incumbent.Internal, "encode an answer: %w", err))
		return
	}
	r.bytes(status, "application/json", b)
}

func (r *request) encode(v any) ([]byte, error) {
	if !r.opts.pretty {
		return json.Marshal(v)
	}
	b, err := json.MarshalIndent(v, "", prettyIndent)
	return append(b, '\n'), err
}

// prettyIndent is what ?pretty indents by.
const prettyIndent = "    "

// bytes answers with bytes, which are not changed any more.
func (r *request) bytes(status int, contentType string, b []byte) {
	if contentType != "" {
		r.setHeader("Content-Type", contentType)
	}
	if r.wantsGzip() && len(b) >= gzipFrom {
		b = gzipped(b)
		r.setHeader("Content-Encoding", "gzip")
	}
	r.send(status, b)
}

// wantsGzip reports whether the client takes gzip.
func (r *request) wantsGzip() bool { return takesGzip(r.header.Get("Accept-Encoding")) }

// decode reads the body's JSON. If that is none it has been answered.
func (r *request) decode(v any) bool {
	if r.hasTooMany() {
		return false
	}
	err := decodeJSON(r.body, v)
	if err != nil {
		r.fail(http.StatusBadRequest, "Request decode failed: %v", err)
	}
	return err == nil
}

// hasTooMany reports whether the body has more values than anything is made of: two bytes
// of a list become hundreds once they are decoded. Then it has been answered.
func (r *request) hasTooMany() bool {
	if !incumbent.HasMoreValues(r.body, maxJSONValues) {
		return false
	}
	r.fail(http.StatusRequestEntityTooLarge, "Request body has too many values, max: %d", maxJSONValues)
	return true
}

func decodeJSON(body []byte, v any) error { return json.NewDecoder(bytes.NewReader(body)).Decode(v) }

// decodeStrict is decodeJSON of what may have no field that is not known.
func decodeStrict(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// origin is that of what the request has done.
func (r *request) origin() core.Origin {
	return core.Origin{At: r.door.now().UTC().Truncate(time.Millisecond), Door: doorName, Address: r.who.address, Principal: r.who.principal.String()}
}
