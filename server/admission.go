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
	*admit.Controller
	begun time.Time
}

func newAdmission(begun time.Time) (*admission, error) {
	c, err := admit.New(admit.Limits{}, rand.Float64)
	return &admission{c, begun}, err
}

// pressure is what this member tells others if it leads.
func (a *admission) pressure() uint8 { return a.Pressure(int64(time.Since(a.begun))) }

// press takes what the leader tells.
func (a *admission) press(rank uint8) { a.Press(rank, int64(time.Since(a.begun))) }

// refusing names the lanes that refuse now.
func (a *admission) refusing() []string {
	var out []string
	for _, l := range a.Refusing(int64(time.Since(a.begun))) {
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
	for lane := range admit.NumLanes {
		labels := prometheus.Labels{"lane": lane.String()}
		m.counter("incumbent_admitted_total", "Work admitted, by lane.", labels, func() float64 { return float64(a.Stats()[lane].Admitted) })
		for why := range admit.NumReasons {
			m.counter("incumbent_refused_total", "Work refused, by lane and reason.",
				prometheus.Labels{"lane": lane.String(), "reason": why.String()},
				func() float64 { return float64(a.Stats()[lane].Refused[why]) })
		}
	}
}
