package consul

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent/histogram"
)

// bounds of the durations of requests, in seconds.
var bounds = []float64{.001, .0025, .01, .025, .1, .25, 1, 2.5, 10, 60}

// statusClasses are the hundreds of statuses, from 1xx.
const statusClasses = 5

// The encodings of a body that many share.
const (
	asJSON = iota
	asGzip
	asPretty
	numEncodings
)

var encodingNames = [numEncodings]string{"json", "gzip", "pretty"}

// noRoute is what was asked for at no path, or by no method, that is served.
const noRoute = "none"

// counts are the door's numbers. All are written from any goroutine.
type counts struct {
	connections atomic.Int64 // accepted and not closed
	blocked     atomic.Int64 // reads that wait
	refused     atomic.Uint64
	noRoom      atomic.Uint64 // connections that ended because bodies that have not come whole have all the room
	noTLS       atomic.Uint64
	malformed   atomic.Uint64 // connections that ended because of what came on them, or came too slowly
	woken       atomic.Uint64 // reads that waited, and were told of another result
	timedOut    atomic.Uint64 // reads that waited, and were told the same
	evaluations atomic.Uint64
	encodings   [numEncodings]atomic.Uint64
	bytes       atomic.Uint64
	routes      []routeCounts // by number; the first is of none
}

// routeCounts are the numbers of a method of a path.
type routeCounts struct {
	name     string
	statuses [statusClasses]atomic.Uint64
	took     *histogram.Durations // of those that did not wait for another result
}

// answered counts the answer to a request.
func (n *counts) answered(r *request, status, size int, took time.Duration) {
	n.bytes.Add(uint64(size)) //nolint:gosec // it is not negative
	c := &n.routes[r.act.number]
	c.statuses[min(max(status/100-1, 0), statusClasses-1)].Add(1)
	if !r.opts.blocking() {
		c.took.Observe(took)
	}
}

// RouteStats are the numbers of a method of a path.
type RouteStats struct {
	Route            string                // "GET /v1/kv/"; none: nothing is served there
	Answered         [statusClasses]uint64 // by the hundreds of their status, from 1xx
	histogram.Counts                       // of requests that did not wait for another result
}

// Encoding is how often results were encoded in one way.
type Encoding struct {
	Name string
	N    uint64
}

// BodyBytes is how much has come of bodies that have not come whole, beyond 64 KiB of each.
// At most [Limits].MaxBodies.
func (d *Door) BodyBytes() int64 { return d.bodies.Taken() }

// Stats are the door's numbers; labels are from closed sets and all there from the
// start.
type Stats struct {
	Connections int    // accepted and not closed
	Blocked     int    // reads that wait
	Refused     uint64 // connections over MaxConnections
	NoRoom      uint64 // connections that ended because bodies that have not come whole have all the room
	NoTLS       uint64 // handshakes that did not succeed
	Malformed   uint64 // connections that ended because of what came on them, or came too slowly
	Woken       uint64 // reads that waited, and were told of another result
	TimedOut    uint64 // reads that waited, and were told what they had
	Evaluations uint64 // of what is read by many
	Encodings   []Encoding
	Bytes       uint64 // of bodies that were sent

	Answered [statusClasses]uint64 // requests, by the hundreds of their status, from 1xx
}

// Stats returns the numbers of the moment, without those of routes.
func (d *Door) Stats() Stats {
	n := &d.counts
	s := Stats{
		Connections: d.Connections(), Blocked: int(n.blocked.Load()), Refused: n.refused.Load(), NoRoom: n.noRoom.Load(), NoTLS: n.noTLS.Load(), Malformed: n.malformed.Load(),
		Woken: n.woken.Load(), TimedOut: n.timedOut.Load(), Evaluations: n.evaluations.Load(), Bytes: n.bytes.Load(),
	}
	for i := range n.encodings {
		s.Encodings = append(s.Encodings, Encoding{encodingNames[i], n.encodings[i].Load()})
	}
	for i := range n.routes {
		for k := range s.Answered {
			s.Answered[k] += n.routes[i].statuses[k].Load()
		}
	}
	return s
}

// Routes returns the numbers of all methods of all paths.
func (d *Door) Routes() []RouteStats {
	out := make([]RouteStats, len(d.counts.routes))
	for i := range out {
		c, s := &d.counts.routes[i], &out[i]
		s.Route, s.Counts = c.name, c.took.Counts()
		for k := range c.statuses {
			s.Answered[k] = c.statuses[k].Load()
		}
	}
	return out
}

// number gives each method of each path a number of its own, from 1 on, and returns
// the counts of all.
func (t *router) number() []routeCounts {
	names := []string{noRoute}
	add := func(s *served) {
		for _, m := range s.allowed {
			if a, ok := s.methods[m]; ok {
				a.number = len(names)
				s.methods[m] = a
				names = append(names, m+" "+s.path)
			}
		}
	}
	for _, s := range t.exact {
		add(s)
	}
	for _, s := range t.prefixes {
		add(s)
	}
	out := make([]routeCounts, len(names))
	for i, name := range names {
		out[i].name, out[i].took = name, histogram.New(bounds)
	}
	return out
}

// counted is a body that counts how often it is encoded.
type counted struct {
	body
	counts *counts
	made   [numEncodings]sync.Once
}

// JSON implements body.
func (c *counted) JSON() []byte { return c.in(asJSON, c.body.JSON) }

// Gzip implements body.
func (c *counted) Gzip() []byte { return c.in(asGzip, c.body.Gzip) }

// Pretty implements body.
func (c *counted) Pretty() []byte { return c.in(asPretty, c.body.Pretty) }

func (c *counted) in(encoding int, b func() []byte) []byte {
	c.made[encoding].Do(func() { c.counts.encodings[encoding].Add(1) })
	return b()
}

// evaluated counts an evaluation, and has its body count encodings. was is the body of
// the evaluation before, which may be the same.
func (n *counts) evaluated(res *result, was *counted) *counted {
	n.evaluations.Add(1)
	if res.body == nil {
		return nil
	}
	if was == nil || was.body != res.body {
		was = &counted{body: res.body, counts: n}
	}
	res.body = was
	return was
}

// waited counts how the wait of a read ended: with another result than the caller had, or
// with the same.
func (n *counts) waited(r *request, other bool) {
	switch {
	case !r.opts.blocking():
	case other:
		n.woken.Add(1)
	default:
		n.timedOut.Add(1)
	}
}
