package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Histogram range: 1 µs to 10 minutes with three significant digits.
const (
	lowestMicros  = 1
	highestMicros = int64(10 * time.Minute / time.Microsecond)
	digits        = 3
)

// Recorder keeps the latency of each operation: in all, and for every second.
type Recorder struct {
	mu  sync.Mutex // protects ops; the names are few and soon all there
	ops map[string]*opRecord
}

// opRecord is one operation's record.
type opRecord struct {
	mu      sync.Mutex // held for one value or one swap
	total   *hdrhistogram.Histogram
	second  *hdrhistogram.Histogram // since the last sample
	step    *hdrhistogram.Histogram // since the last step of a ladder
	count   uint64
	errors  uint64
	secErrs uint64
	first   time.Duration
	last    time.Duration
	early   bool // of what is done before the warm-up
}

// OpSummary is one operation as summary.json has it. Times are milliseconds.
type OpSummary struct {
	Count      uint64  `json:"count"`
	Errors     uint64  `json:"errors"`
	Rate       float64 `json:"rate"` // per second, while the operation was in use
	P50        float64 `json:"p50_ms"`
	P90        float64 `json:"p90_ms"`
	P99        float64 `json:"p99_ms"`
	P999       float64 `json:"p999_ms"`
	Max        float64 `json:"max_ms"`
	CPUMicros  float64 `json:"cpu_us_per_op,omitempty"`        // server's, where this is the only operation
	LoadMicros float64 `json:"client_cpu_us_per_op,omitempty"` // this process's
}

// OpSample is one operation in one second.
type OpSample struct {
	Count  uint64  `json:"count"`
	Errors uint64  `json:"errors"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

// NewRecorder returns an empty one.
func NewRecorder() *Recorder { return &Recorder{ops: make(map[string]*opRecord)} }

func (r *Recorder) op(name string) *opRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.ops[name]
	if o == nil {
		o = &opRecord{total: newHistogram(), second: newHistogram(), step: newHistogram()}
		r.ops[name] = o
	}
	return o
}

// earlyOp is op of what is done before a warm-up: its end does not forget it.
func (r *Recorder) earlyOp(name string) *opRecord {
	o := r.op(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.early = true
	return o
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(lowestMicros, highestMicros, digits)
}

// done records one answer at time at (since the start), lat after its intended
// start, standing for n operations.
func (o *opRecord) done(at, lat time.Duration, n int) {
	us := min(max(int64(lat/time.Microsecond), lowestMicros), highestMicros)
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.second.RecordValues(us, int64(n)) // cannot fail: us is within its range
	o.count += uint64(n)
	o.touch(at)
}

// failed records n operations that were answered with an error or not at all.
func (o *opRecord) failed(at time.Duration, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errors += uint64(n)
	o.secErrs += uint64(n)
	o.touch(at)
}

func (o *opRecord) touch(at time.Duration) {
	if o.first == 0 || at < o.first {
		o.first = at
	}
	o.last = max(o.last, at)
}

// answered is how many operations were done.
func (o *opRecord) answered() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count
}

// answered is how many operations were done, of all but those that were turned away.
func (r *Recorder) answered() (sum uint64) {
	for name, o := range r.all() {
		if name != turnedAway {
			sum += o.answered()
		}
	}
	return sum
}

// sample closes the current second.
func (o *opRecord) sample() OpSample {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.second
	s := OpSample{
		Count: uint64(h.TotalCount()), Errors: o.secErrs,
		P50: millis(h.ValueAtQuantile(50)), P99: millis(h.ValueAtQuantile(99)), Max: millis(h.Max()),
	}
	o.total.Merge(h)
	o.step.Merge(h)
	h.Reset()
	o.secErrs = 0
	return s
}

// summary is what was recorded in all.
func (o *opRecord) summary() OpSummary {
	o.sample()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := summarize(o.total)
	s.Errors = o.errors
	if d := (o.last - o.first).Seconds(); d > 0 {
		s.Rate = float64(o.count) / d
	}
	return s
}

// closeStep is what was recorded since the last call.
func (o *opRecord) closeStep() OpSummary {
	o.sample()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := summarize(o.step)
	o.step.Reset()
	return s
}

func summarize(h *hdrhistogram.Histogram) OpSummary {
	return OpSummary{
		Count: uint64(h.TotalCount()),
		P50:   millis(h.ValueAtQuantile(50)), P90: millis(h.ValueAtQuantile(90)), P99: millis(h.ValueAtQuantile(99)),
		P999: millis(h.ValueAtQuantile(99.9)), Max: millis(h.Max()),
	}
}

func millis(us int64) float64 { return float64(us) / 1000 }

// reset forgets everything, at the end of a warm-up, but what was to be done before it.
func (r *Recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.ops {
		o.reset()
	}
}

func (o *opRecord) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.early {
		return
	}
	o.total.Reset()
	o.second.Reset()
	o.step.Reset()
	o.count, o.errors, o.secErrs, o.first, o.last = 0, 0, 0, 0, 0
}

// sample closes the current second of every operation.
func (r *Recorder) sample() map[string]OpSample {
	out := make(map[string]OpSample)
	for name, o := range r.all() {
		if s := o.sample(); s.Count > 0 || s.Errors > 0 {
			out[name] = s
		}
	}
	return out
}

func (r *Recorder) all() map[string]*opRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]*opRecord, len(r.ops))
	for name, o := range r.ops {
		out[name] = o
	}
	return out
}
