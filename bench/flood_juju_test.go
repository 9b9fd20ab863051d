package bench

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// A flood over the door for Juju's agents claims in bulk, for one unit after the other.
func TestFloodOfJujusClaims(t *testing.T) {
	fake := &fakeJuju{password: "right"}
	f := &flood{run: newRun(&Scenario{}, Options{JujuPassword: "right"}), floodWork: floods["juju-claims"], doors: map[int]string{0: fake.open(t).address}, model: "m"}
	c, err := f.open(t.Context(), f, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	const sets = floodClients * jujuFloodSets / floodClosed // with half of the clients each has twice as many
	for i := range sets*jujuFloodUnits + 1 {
		if done, err := c.ask(t.Context(), i); done != jujuFloodClaims || err != nil {
			t.Errorf("request %d: %d done, %v", i, done, err)
		}
	}
	fake.mu.Lock()
	defer fake.mu.Unlock()
	heard := strings.Join(fake.heard, "\n")
	for part, n := range map[string]int{
		`"application-tag":"application-flood3x0","unit-tag":"unit-flood3x0-0","duration":60}`:       2,
		`"application-tag":"application-flood899x49","unit-tag":"unit-flood899x49-2","duration":60}`: 1,
	} {
		if got := strings.Count(heard, part); got != n {
			t.Errorf("%d claims of %s, want %d", got, part, n)
		}
	}
	if h := fake.leases["flood3x0"]; len(fake.leases) != sets*jujuFloodClaims || h.unit != "unit-flood3x0-0" {
		t.Errorf("%d leases, one of %+v", len(fake.leases), h)
	}
}

// A flood is played on the last stage alone.
func TestFloodsOfAScenarioOfJujus(t *testing.T) {
	sc, err := Load("juju-claim-flood", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !onceOnly(sc.script()) || !sc.flooded(doorJuju) || onceOnly([]Action{{Do: "restart"}}) {
		t.Errorf("script %v", sc.script())
	}
	var leases []int
	for _, s := range sc.Stages {
		leases = append(leases, s.Leases)
	}
	if fmt.Sprint(leases) != "[200 4000 8000 12100]" || sc.TTL != Duration(10*time.Second) || sc.Every != Duration(5*time.Second) || sc.Candidates != 3 {
		t.Errorf("not the original's: %v, %v", leases, sc)
	}
}

func TestAnswersToJujusClaims(t *testing.T) {
	for answer, want := range map[string]struct {
		granted, denied int
		kind            incumbent.Kind
	}{
		`{"request-id":7,"response":{"results":[{},{"error":{"message":"leadership claim denied","code":"leadership claim denied"}}]}}`: {1, 1, incumbent.OK},
		`{"request-id":7,"response":{"results":[{},{"error":{"message":"later","code":"try again"}}]}}`:                                 {1, 0, incumbent.Overloaded},
		`{"request-id":7,"response":{"results":[{"error":{"message":"permission denied","code":"unauthorized access"}}]}}`:              {0, 0, incumbent.Unavailable},
		`{"request-id":7,"error":"later","error-code":"try again"}`:                                                                     {0, 0, incumbent.Overloaded},
		`{"request-id":7,"error":"no"}`: {0, 0, incumbent.Unavailable},
	} {
		granted, denied, err := judgeJujuClaims([]byte(answer), 7)
		if granted != want.granted || denied != want.denied || incumbent.KindOf(err) != want.kind {
			t.Errorf("%s: %d granted, %d denied, %v", answer, granted, denied, err)
		}
	}
	for _, answer := range []string{`{"request-id":8,"response":{"results":[{}]}}`, `{`, ``} {
		if granted, denied, err := judgeJujuClaims([]byte(answer), 7); granted+denied != 0 || !errors.Is(err, errWire) {
			t.Errorf("%q: %d granted, %d denied, %v", answer, granted, denied, err)
		}
	}
}
