package admit

import (
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Reason says why a request was not served.
type Reason uint8

// The reasons.
const (
	Delay      Reason = iota // the lane's own work waits too long, or others for it
	Order                    // a lane that is refused later is short
	Memory                   // memory is short
	Share                    // its client, or its group, has more than their share under way
	NumReasons               // how many there are
)

var reasonNames = [NumReasons]string{"delay", "order", "memory", "share"}

// String returns the reason's name, as used in metrics.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// refuse counts a refusal and makes its error.
func (c *Controller) refuse(l Lane, why Reason) error {
	c.lanes[l].refused[why].Add(1)
	limits := c.limits.Load()
	wait := min(float64(limits.Retry)*c.lanes[l].excess(), float64(limits.MaxRetry))
	return &incumbent.Error{
		Kind:       incumbent.Overloaded,
		Message:    c.messages[l][why],
		Hint:       hints[why],
		RetryAfter: time.Duration(wait * (0.5 + c.jitter())),
	}
}

var hints = [NumReasons]string{
	Delay:  "come back after the given time; admission.mode observe only counts",
	Order:  "come back after the given time; admission.mode observe only counts",
	Memory: "come back after the given time; --memory-limit sets how much may be used",
	Share:  "come back after the given time; admission.mode observe only counts",
}

// initMessages makes the messages once: a refusal must be cheap.
func (c *Controller) initMessages() {
	for l := range NumLanes {
		for why := range NumReasons {
			c.messages[l][why] = message(l, why)
		}
	}
}

func message(l Lane, why Reason) string {
	return l.String() + [NumReasons]string{
		Delay:  " wait too long or make others wait",
		Order:  " are refused while what comes after them waits too long",
		Memory: " are refused while memory is short",
		Share:  " are refused to whoever has more than their share under way",
	}[why]
}
