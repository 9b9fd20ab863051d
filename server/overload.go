package server

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// overloadOver is how long nothing must be refused until an overload counts as over.
const overloadOver = 5 * time.Second

// overloadWatch looks at what is refused for want of room, from second to second.
//
// Concurrency: look belongs to one goroutine; says may be called from anywhere.
type overloadWatch struct {
	events *timeline
	log    *slog.Logger

	last     [admit.NumLanes]admit.LaneStats
	began    time.Time // zero: there is none
	quiet    time.Time // of the last refusal
	refused  uint64    // since it began
	observed bool      // it is only counted

	mu       sync.Mutex // guards what follows; held to copy it
	sentence string     // "": there is no overload
}

// look takes the counts of now, once a second.
func (o *overloadWatch) look(now time.Time, stats [admit.NumLanes]admit.LaneStats, mode admit.Mode, memory, limit int64) {
	lanes, why, n := o.since(&stats)
	o.last = stats
	switch {
	case n > 0 && o.began.IsZero():
		o.began, o.refused = now, 0
		o.events.add(Event{What: "overload", Detail: refusal(lanes, why, mode)})
		fallthrough
	case n > 0:
		o.quiet, o.observed = now, mode == admit.Observe
		o.refused += n
		o.log.Warn("overload", "refused", n, "lanes", strings.Join(lanes, ","), "reason", why.String(), "observed", o.observed, "resident_bytes", memory, "memory_limit_bytes", limit)
		o.say(fmt.Sprintf("%s, %s in %v", refusal(lanes, why, mode), plural(int64(o.refused), "request", "requests"), now.Sub(o.began).Round(time.Second)))
	case !o.began.IsZero() && now.Sub(o.quiet) >= overloadOver:
		detail := fmt.Sprintf("after %v, %s refused", o.quiet.Sub(o.began).Round(time.Second)+time.Second, plural(int64(o.refused), "request", "requests"))
		if o.observed {
			detail += " had they not only been counted"
		}
		o.events.add(Event{What: "overload over", Detail: detail})
		o.log.Info("overload over", "refused", o.refused)
		o.began = time.Time{}
		o.say("")
	}
}

// since is what was refused since the last look: by which lanes, why most of it, and how
// much.
func (o *overloadWatch) since(stats *[admit.NumLanes]admit.LaneStats) (lanes []string, most admit.Reason, n uint64) {
	var by [admit.NumReasons]uint64
	for l := range stats {
		some := uint64(0)
		for why := range admit.NumReasons {
			more := stats[l].Refused[why] - o.last[l].Refused[why]
			by[why] += more
			some += more
		}
		if n += some; some > 0 {
			lanes = append(lanes, stats[l].Lane.String())
		}
	}
	for why := range by {
		if by[why] > by[most] {
			most = admit.Reason(why)
		}
	}
	return lanes, most, n
}

// refusal says what is refused, and why.
func refusal(lanes []string, why admit.Reason, mode admit.Mode) string {
	verb := " are refused: "
	if mode == admit.Observe {
		verb = " would be refused: "
	}
	reasons := map[admit.Reason]string{
		admit.Delay:  "they wait too long or make others wait",
		admit.Order:  "what is refused after them waits too long",
		admit.Memory: "memory is short",
		admit.Share:  "some have more than their share under way",
	}
	return strings.Join(lanes, ", ") + verb + reasons[why]
}

func (o *overloadWatch) say(sentence string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sentence = sentence
}

// warnings is the sentence for status, while there is an overload.
func (o *overloadWatch) warnings() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sentence == "" {
		return nil
	}
	return []string{o.sentence}
}
