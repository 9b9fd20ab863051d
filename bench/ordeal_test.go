package bench

import (
	"testing"
	"testing/synctest"
	"time"
)

// slowVictims take their time to be disconnected.
type slowVictims struct {
	*fleet
	takes []time.Duration // the first time, the second and so on
}

func (v *slowVictims) disconnect([]int) {
	time.Sleep(v.takes[0])
	v.takes = v.takes[1:]
}

// An action that is due while the one before it is being done comes later than planned, which is
// noted: the most of all stages of a run.
func TestLateActionsAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(&Scenario{}, Options{})
		r.begun, r.cluster = time.Now(), &fakeCluster{}
		for _, stage := range []struct {
			takes []time.Duration
			want  float64 // seconds, so far
		}{
			{[]time.Duration{500 * time.Millisecond, time.Second, 0}, 0},
			{[]time.Duration{4 * time.Second, 2 * time.Second, 0}, 4}, // 3 s late, and 4
			{[]time.Duration{2 * time.Second, 0, 0}, 4},
		} {
			o := &ordeal{run: r, victims: &slowVictims{&fleet{run: r}, stage.takes}, settle: time.Second}
			again := Action{Do: "disconnect", Member: "last"}
			var script []Action
			for _, after := range []time.Duration{1, 2, 3} {
				again.After = Duration(after * time.Second)
				script = append(script, again)
			}
			if err := o.play(t.Context(), script); err != nil {
				t.Fatal(err)
			}
			if got := r.noted("actions_late_max_seconds"); got != stage.want {
				t.Errorf("%v s late, want %v", got, stage.want)
			}
		}
	})
}
