package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/incumbent-dev/incumbent"
)

// interval is what an operation's record has gathered since it was last taken, for
// a recorder in another process.
type interval struct {
	Histogram []byte        `json:"histogram,omitempty"` // as HdrHistogram encodes it, compressed
	Errors    uint64        `json:"errors,omitempty"`
	First     time.Duration `json:"first"`
	Last      time.Duration `json:"last"`
}

// take returns what every operation has gathered, and forgets it.
func (r *Recorder) take() (map[string]interval, error) {
	out := make(map[string]interval)
	for name, o := range r.all() {
		i, err := o.take()
		if err != nil {
			return nil, err
		}
		if i.Histogram != nil || i.Errors > 0 {
			out[name] = i
		}
	}
	return out, nil
}

func (o *opRecord) take() (i interval, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i = interval{Errors: o.secErrs, First: o.first, Last: o.last}
	if o.second.TotalCount() > 0 {
		i.Histogram, err = o.second.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	}
	o.second.Reset()
	o.secErrs, o.first, o.last = 0, 0, 0
	return i, err
}

// add merges what another process has recorded.
func (r *Recorder) add(all map[string]interval) error {
	for name, i := range all {
		if err := r.op(name).add(i); err != nil {
			return incumbent.Errorf(incumbent.Corrupt, "histogram of %s: %w", name, err)
		}
	}
	return nil
}

func (o *opRecord) add(i interval) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i.Histogram != nil {
		h, err := hdrhistogram.Decode(i.Histogram)
		if err != nil {
			return err
		}
		o.second.Merge(h)
		o.count += uint64(h.TotalCount())
	}
	o.errors += i.Errors
	o.secErrs += i.Errors
	o.touch(i.First)
	o.touch(i.Last)
	return nil
}
