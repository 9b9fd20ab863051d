package consul

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/tally"
	"github.com/incumbent-dev/incumbent/watch"
)

// sharedQuery is a read whose result all share who ask the same and may see the same.
type sharedQuery struct {
	kind   string // the endpoint's; with params it says what is asked
	params string // in a canonical form
	rights string // what of it the caller may see; "": all
	// direct says that a result costs no more than to look whether it is there: who does
	// not wait has its own.
	direct bool
	// eval computes the result from a view, and notes all that it reads of it. A closure
	// may keep what it uses again: evaluations of one query never overlap.
	eval func(v *core.View, reads *watch.Reads) result
}

// result is what an evaluation gives. It never changes.
type result struct {
	status   int             // 0: 200
	index    incumbent.Index // by which it is blocked; 0: it is blocked by hash
	hash     watch.Hash      // of what it says; may be zero where each change moves the index
	body     body
	fails    string // the error that is told in its place; "": none is
	raw      bool   // the body is no JSON
	local    bool   // nothing is said of how it stands to what other members have
	filtered bool   // something was left out that the caller may not see
	size     int    // bytes that keeping it costs, at least those of the body
}

// body is a result's in the encodings that go out, each made once for all.
type body interface {
	JSON() []byte
	Gzip() []byte // of JSON
	Pretty() []byte
}

// encoded is a body that is made of its JSON.
type encoded struct {
	json         func() []byte
	gzip, pretty func() []byte
}

// newBody returns a body whose JSON is made when it is first asked for.
func newBody(make func() []byte) body {
	e := &encoded{json: sync.OnceValue(make)}
	e.gzip = sync.OnceValue(func() []byte { return gzipped(e.json()) })
	e.pretty = sync.OnceValue(func() []byte { return indented(e.json()) })
	return e
}

// JSON implements body.
func (e *encoded) JSON() []byte { return e.json() }

// Gzip implements body.
func (e *encoded) Gzip() []byte { return e.gzip() }

// Pretty implements body.
func (e *encoded) Pretty() []byte { return e.pretty() }

// fixedResult is a result that never changes.
func fixedResult(v any) func(*core.View, *watch.Reads) result {
	res := result{index: 1, body: newBody(func() []byte {
		b, err := json.Marshal(v)
		if err != nil {
			panic(incumbent.Errorf(incumbent.Internal, "encode an answer: %w", err))
		}
		return b
	})}
	return func(*core.View, *watch.Reads) result { return res }
}

// shared answers with the result of a query, when it is another than the caller has.
func (r *request) shared(q sharedQuery) {
	var was *counted // of the evaluation before
	spec := watch.QuerySpec[*core.View]{
		Key: watch.QueryKey{Params: doorName + " " + q.kind + "\x00" + q.params, Rights: q.rights},
		Eval: func(v *core.View, reads *watch.Reads) watch.Result {
			res := q.eval(v, reads)
			was = r.door.counts.evaluated(&res, was)
			if res.filtered { // callers are told: it is part of what the result says
				res.hash[0] ^= 1
			}
			return watch.Result{Value: &res, Hash: res.hash, Modified: res.index, Size: res.size}
		},
	}
	want := r.opts.want()
	if q.direct && want.For == 0 {
		r.fresh(func() {
			res := q.eval(r.door.view(), nil)
			r.door.counts.evaluated(&res, nil)
			r.result(&res, res.index, res.hash)
		})
		return
	}
	if want.For > 0 { // it may have waited before
		want.For = max(time.Millisecond, want.For-r.door.now().Sub(r.began))
	}
	if r.ownWillDo() {
		r.await(spec, want)
		return
	}
	r.confirmed(func() {
		want.AtLeast = r.door.view().Index()
		r.await(spec, want)
	})
}

// blocked is a request that waits for a query.
type blocked struct {
	r     *request
	query *watch.Query[*core.View]
	wait  *watch.QueryWait[*core.View]
	place tally.Place // among what its caller has open
	told  watch.Told
}

// await waits for the query. It holds no place in a lane.
func (r *request) await(spec watch.QuerySpec[*core.View], want watch.Want) {
	r.giveBack(false)
	q, err := r.door.engine.Queries().Query(spec)
	if err != nil {
		r.failFor(err)
		return
	}
	b := &blocked{r: r, query: q}
	if want.For > 0 {
		if b.place, err = r.door.cfg.Tally.Take(settings.OpenWatches, r.who.principal, ""); err != nil {
			q.Release()
			r.failFor(err)
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		b.release()
		return
	}
	if r.leaving.Load() { // leave has found nobody waiting, and does not look again
		want.After, want.Not, want.For = 0, watch.Hash{}, 0
	}
	// The callback may come before this returns: it only puts into a queue.
	b.wait, err = q.Wait(want, func(t watch.Told) {
		b.told = t
		r.door.told.Put(b)
	})
	if err != nil {
		b.release()
		r.door.work.Put(func() { r.failFor(err) })
		return
	}
	r.door.counts.blocked.Add(1)
	r.blocked = b
	if r.judged != r.door.rechecks.Load() { // nobody has found it waiting
		r.door.work.Put(r.recheck)
	}
}

// toldAtOnce is how many waits are answered before whoever applies has the processor.
const toldAtOnce = 8

// tell answers reads whose wait is over.
func (d *Door) tell() {
	var got []*blocked
	for {
		got = d.told.Take(got, toldAtOnce)
		if len(got) == 0 {
			return
		}
		for _, b := range got {
			b.ended()
		}
		runtime.Gosched()
	}
}

// release gives back what the wait had.
func (b *blocked) release() {
	b.query.Release()
	b.place.Give()
}

// ended answers: the wait is over.
func (b *blocked) ended() {
	r := b.r
	r.mu.Lock()
	mine := r.blocked == b
	if mine {
		r.blocked = nil
	}
	r.mu.Unlock()
	b.release()
	r.door.counts.blocked.Add(-1)
	if mine {
		r.told(b.told)
	}
}

// stop ends the wait of a request that waits for a query without an answer, and reports
// whether it did: not if it does not wait, or has just been told. over: nobody waits for
// the answer any more.
func (r *request) stop(over bool) bool {
	r.mu.Lock()
	b := r.blocked
	r.over = r.over || over
	if over && r.gone != nil {
		r.gone()
	}
	stopped := b != nil && b.wait.Cancel()
	if stopped {
		r.blocked = nil
	}
	r.mu.Unlock()
	if stopped {
		b.release()
		r.door.counts.blocked.Add(-1)
	}
	return stopped
}

// whenGone has f called when nobody waits for the answer any more, or who asked is not
// known any more. It must not block.
func (r *request) whenGone(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone = f; r.over {
		f()
	}
	if r.judged != r.door.rechecks.Load() { // nobody has found it under way
		r.door.work.Put(r.recheck)
	}
}

// whenLeaving has f called when this member leaves: the answer has no end of its own. It
// must not block.
func (r *request) whenLeaving(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endless = f; r.leaving.Load() {
		f()
	}
}

// abandon ends what the request waits for: its connection is gone. A command that is under
// way stays so, and keeps its place in the lane until its outcome comes: see send. Else who
// sends and leaves would have any number of them under way.
func (r *request) abandon() {
	r.stop(true)
	_ = r.letGo() // nobody is told
	r.done.Store(true)
}

// leave has what waits answered with what there is, as soon as that is right at the index
// that was confirmed, and ends the connection with the answer. A refusal is told at once.
func (r *request) leave() {
	r.leaving.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.endless != nil {
		r.endless()
	}
	if r.blocked != nil {
		r.blocked.wait.Enough()
	}
	if r.refused != nil {
		r.refused.timer.Reset(0)
	}
}

// recheck judges a read that waits again, and ends what takes long of somebody who is not
// known any more.
func (r *request) recheck() {
	if !r.stop(false) { // it does not wait, or not yet: see await
		r.endUnknown()
		return
	}
	r.judged = r.door.rechecks.Load()
	if !r.door.cfg.Guard.Knows()(r.who.principal) {
		r.fail(http.StatusForbidden, textUnknownUser)
		return
	}
	r.extra, r.asked = r.extra[:0], r.door.now()
	r.run()
}

// endUnknown ends what takes long, if who asked for it is not known any more.
func (r *request) endUnknown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone != nil && !r.door.cfg.Guard.Knows()(r.who.principal) {
		r.gone()
	}
}

// told answers with what the query has told.
func (r *request) told(t watch.Told) {
	switch {
	case incumbent.KindOf(t.Err) == incumbent.Overloaded:
		r.failFor(t.Err)
		return
	case t.Err != nil || t.Answer == nil:
		r.failFor(errNoLeader) // the hub closes: this member leaves
		return
	}
	res := t.Answer.Value.(*result) //nolint:forcetypeassert // what shared gives
	r.door.counts.waited(r, t.Answer.Changed > r.opts.index && r.opts.index != 0 || r.opts.hash != "" && hex.EncodeToString(t.Answer.Hash[:]) != r.opts.hash)
	changed := t.Answer.Changed
	if r.opts.index <= t.Read { // another member looked first when it was later: to whom it said so the index does not go back
		changed = max(changed, r.opts.index)
	}
	r.noteTold(res, changed, t.Answer)
	r.result(res, changed, t.Answer.Hash)
}

// result answers with a result that is this since an index, or has a hash.
func (r *request) result(res *result, changed incumbent.Index, hash watch.Hash) {
	if res.fails != "" {
		r.fail(res.status, "%s", res.fails)
		return
	}
	if res.index == 0 {
		r.setHeader("X-Consul-Contenthash", hex.EncodeToString(hash[:]))
	} else {
		r.setHeader("X-Consul-Index", formatIndex(changed))
		if !res.local {
			r.consistencyHeaders()
		}
	}
	r.tellFiltered(res.filtered)
	status := cmp.Or(res.status, http.StatusOK)
	if res.body == nil {
		r.send(status, nil)
		return
	}
	if res.raw {
		r.rawHeaders()
	} else {
		r.setHeader("Content-Type", "application/json")
	}
	var b []byte
	switch {
	case r.opts.pretty && !res.raw:
		b = res.body.Pretty()
	case r.wantsGzip() && res.size >= gzipFrom: // the plain one is not made for that
		b = res.body.Gzip()
		r.setHeader("Content-Encoding", "gzip")
	default:
		b = res.body.JSON()
	}
	r.send(status, b)
}

// consistency is which one the state has that is read, and how old it may be.
func (r *request) consistency() (level string, age time.Duration) {
	switch {
	case r.opts.consistent:
		return "consistent", 0
	case r.opts.stale:
		return "stale", r.door.cfg.Cluster.Age()
	}
	return "leader", 0
}

func (r *request) knowsLeader() bool {
	leader, _ := r.door.engine.Node().Leader()
	return leader != 0
}

// tellFiltered says whether something was left out that the caller may not see.
func (r *request) tellFiltered(hides bool) {
	if hides {
		r.setHeader("X-Consul-Results-Filtered-By-Acls", "true")
	}
}

// consistencyHeaders say how the state that was read stands to the leader's.
func (r *request) consistencyHeaders() {
	level, age := r.consistency()
	if r.opts.cached && !strings.HasPrefix(r.path, "/v1/kv/") {
		r.setHeader("X-Cache", "HIT")
		r.setHeader("Age", strconv.Itoa(int(r.door.cfg.Cluster.Age().Seconds())))
	}
	if r.levels() {
		r.setHeader("X-Consul-Effective-Consistency", level)
	}
	r.setHeader("X-Consul-Knownleader", strconv.FormatBool(r.knowsLeader()))
	r.setHeader("X-Consul-Lastcontact", strconv.FormatInt(age.Milliseconds(), 10))
	if r.path != "/v1/txn" {
		r.setHeader("X-Consul-Query-Backend", "blocking-query")
	}
}

// levels reports whether answers say how consistent they are: those about the catalog,
// health and prepared queries do.
func (r *request) levels() bool {
	return strings.HasPrefix(r.path, "/v1/catalog/") || strings.HasPrefix(r.path, "/v1/health/") || strings.HasPrefix(r.path, "/v1/query")
}
