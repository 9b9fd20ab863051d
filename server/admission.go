package server

import (
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent/admit"
)

// admission is the member's lanes with what the server adds: memory as an
// input, metrics as an output.
type admission struct {
	admit.Clocked
}

func newAdmission(begun time.Time) (*admission, error) {
	c, err := admit.New(admit.Limits{}, rand.Float64)
	return &admission{admit.Clocked{Controller: c, Now: func() int64 { return int64(time.Since(begun)) }}}, err
}

// refusing names the lanes that refuse now.
func (a *admission) refusing() []string {
	var out []string
	for _, l := range a.Refusing() {
		out = append(out, l.String())
	}
	return out
}

// refused is how much was refused so far, over all lanes.
func (a *admission) refused() float64 {
	sum := uint64(0)
	for _, l := range a.Stats() {
		for _, n := range l.Refused {
			sum += n
		}
	}
	return float64(sum)
}

func (a *admission) register(m *metrics) {
	m.counter("incumbent_admission_disorder_total", "Work admitted although a lane that is refused later refused: 0, or the order of refusal was broken.", nil,
		func() float64 { return float64(a.Disorder()) })
	m.counter("incumbent_slowed_total", "Times that a connection was served later, because more came over it than its pace allows that asked for nothing or was refused for what it asked.", nil,
		func() float64 { return float64(a.Slowed()) })
	for lane := range admit.NumLanes {
		labels := prometheus.Labels{"lane": lane.String()}
		m.counter("incumbent_admitted_total", "Work admitted, by lane.", labels, func() float64 { return float64(a.Stats()[lane].Admitted) })
		m.counter("incumbent_deferred_total", "Times that work which waits for a place found none yet, by lane.", labels, func() float64 { return float64(a.Stats()[lane].Deferred) })
		for why := range admit.NumReasons {
			m.counter("incumbent_refused_total", "Work refused, by lane and reason.",
				prometheus.Labels{"lane": lane.String(), "reason": why.String()},
				func() float64 { return float64(a.Stats()[lane].Refused[why]) })
		}
	}
}
