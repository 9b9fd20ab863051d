package server

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// metrics is the member's own registry. Labels come from closed sets, all of
// them there from the start; never a lease's name.
type metrics struct {
	registry     *prometheus.Registry
	results      []prometheus.Counter // applied commands, by kind of outcome
	changes      []prometheus.Counter // what happened to sessions and members, by What
	leaseChanges []prometheus.Counter // what happened to leases, by What
	lateness     prometheus.Histogram // expiry after its deadline
	sync         prometheus.Histogram // one flush of the log
	apply        prometheus.Histogram // one batch
	applyWait    prometheus.Histogram // until its turn

	elections prometheus.Counter   // changes of the leader that this member heard of
	peerDrops []prometheus.Counter // by class of connection
	peerEnds  []prometheus.Counter // connections that ended, by class
	peerNo    []prometheus.Counter // refused, by reason
	peerCrowd prometheus.Counter   // that had proven nothing, closed to make room
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		lateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "incumbent_expiry_lateness_seconds", Help: "Time from a deadline to the expiry's apply.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2, 5, 10},
		}),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "incumbent_log_sync_seconds", Help: "Time of one flush of the log.",
			Buckets: prometheus.ExponentialBuckets(20e-6, 2.5, 14),
		}),
		apply: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "incumbent_apply_seconds", Help: "Time to apply one entry.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2.5, 14),
		}),
		applyWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "incumbent_apply_wait_seconds", Help: "Time for which a committed entry waits for its turn to be applied.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2.5, 14),
		}),
	}
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "incumbent_commands_total", Help: "Commands applied, by outcome.",
	}, []string{"kind"})
	for _, k := range append([]incumbent.Kind{incumbent.OK}, incumbent.Kinds()...) {
		m.results = append(m.results, results.WithLabelValues(k.String()))
	}
	changes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "incumbent_changes_total", Help: "Changes of leases and sessions, by what happened.",
	}, []string{"what"})
	m.changes = append(m.changes, nil) // there is no What 0
	for _, w := range core.Whats() {
		m.changes = append(m.changes, changes.WithLabelValues(w.String()))
	}
	m.leaseChanges = append(m.leaseChanges, nil)
	for _, w := range leases.Whats() {
		m.leaseChanges = append(m.leaseChanges, changes.WithLabelValues(w.String()))
	}
	m.peers()
	m.registry.MustRegister(results, changes, m.lateness, m.sync, m.apply, m.applyWait,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) result(k incumbent.Kind) { m.results[k].Inc() }

func (m *metrics) change(w core.What) { m.changes[w].Inc() }

func (m *metrics) leaseChange(w leases.What) { m.leaseChanges[w].Inc() }

// leasesChanged is how often w happened to a lease.
func (m *metrics) leasesChanged(w leases.What) float64 { return valueOf(m.leaseChanges[w]) }

func valueOf(c prometheus.Counter) float64 {
	var out dto.Metric
	if err := c.Write(&out); err != nil {
		return 0
	}
	return out.GetCounter().GetValue()
}

// gauge registers a value that is read when somebody asks.
func (m *metrics) gauge(name, help string, labels prometheus.Labels, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, read))
}

// counter registers a count that another package keeps.
func (m *metrics) counter(name, help string, labels prometheus.Labels, read func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, read))
}

// scraped shows numbers that are read all at once.
type scraped struct {
	descs   []*prometheus.Desc
	collect func(out chan<- prometheus.Metric)
}

// desc is one of what it shows.
func (c *scraped) desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	c.descs = append(c.descs, d)
	return d
}

// Describe implements [prometheus.Collector].
func (c *scraped) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *scraped) Collect(out chan<- prometheus.Metric) { c.collect(out) }

// maxScrapes is how many may read metrics at once. Others are told 503: each has all of them made.
const maxScrapes = 32

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: maxScrapes})
}

// text is what handler serves.
func (m *metrics) text() ([]byte, string, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, "", err
	}
	w := &page{header: http.Header{}}
	m.handler().ServeHTTP(w, r)
	return w.body.Bytes(), w.header.Get("Content-Type"), nil
}

// page keeps what a handler writes.
type page struct {
	header http.Header
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (p *page) Header() http.Header { return p.header }

// Write implements [http.ResponseWriter].
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

// WriteHeader implements [http.ResponseWriter].
func (p *page) WriteHeader(int) {}

// rateWindow is the time over which `status` gives rates.
const rateWindow = 10

// rates keeps the last seconds of some counters, fed once a second.
type rates struct {
	ring [rateWindow + 1][]float64
	at   [rateWindow + 1]time.Time
	n    int
}

func (r *rates) sample(now time.Time, values []float64) {
	i := r.n % len(r.ring)
	r.ring[i] = append(r.ring[i][:0], values...)
	r.at[i] = now
	r.n++
}

// perSecond returns the rate of each counter over what is kept.
func (r *rates) perSecond(n int) []float64 { return r.over(rateWindow, n) }

// over returns the rate of each counter since so many samples, at most rateWindow.
func (r *rates) over(samples, n int) []float64 {
	out := make([]float64, n)
	if r.n < 2 {
		return out
	}
	newest := (r.n - 1) % len(r.ring)
	oldest := max(0, r.n-1-samples) % len(r.ring)
	d := r.at[newest].Sub(r.at[oldest]).Seconds()
	if d <= 0 {
		return out
	}
	for i := range out {
		out[i] = (r.ring[newest][i] - r.ring[oldest][i]) / d
	}
	return out
}
