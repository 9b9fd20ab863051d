package bench

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

const ladderYAML = `name: t
play: ladder
ttl: 4s
every: 1s
stages:
  - {leases: 10, ramp: 5, hold: 1s}
presets:
  small: {ttl: 2s, candidates: "2"}
`

func TestEveryBuiltinScenarioLoads(t *testing.T) {
	names := List()
	if len(names) < 10 {
		t.Fatalf("only %v", names)
	}
	for _, name := range names {
		sc, err := Load(name, nil)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if sc.Name != name || sc.Description == "" {
			t.Errorf("%s: name %q, description %q", name, sc.Name, sc.Description)
		}
		for preset := range sc.Presets {
			if _, err := Load(name, map[string]string{"scale": preset}); err != nil {
				t.Errorf("scale=%s: %v", preset, err)
			}
		}
	}
}

func TestSettings(t *testing.T) {
	sc, err := parse("t", []byte(ladderYAML), map[string]string{"scale": "small", "ttl": "3s", "stages.0.leases": "7", "hand_overs": "2.5"})
	if err != nil {
		t.Fatal(err)
	}
	// An explicit setting wins over the preset's; the preset's over the file's.
	if time.Duration(sc.TTL) != 3*time.Second || sc.Candidates != 2 || sc.Stages[0].Leases != 7 || sc.HandOvers != 2.5 || sc.Stages[0].Ramp != 5 {
		t.Errorf("%+v", sc)
	}
}

func TestScenarioRefusals(t *testing.T) {
	closed := "play: closed\nclosed: {op: extend, workers: 4, duration: 1s}\n"
	for _, c := range []struct{ yaml, key, value, want string }{
		{ladderYAML + "colour: red\n", "", "", "line 9: field colour not found"},
		{ladderYAML, "scale", "huge", `no preset "huge"; it has small`},
		{ladderYAML, "stages.1.leases", "5", "no place in a list of 1"},
		{ladderYAML, "ttl.x", "5", "nothing below"},
		{ladderYAML, "ttl", "soon", "is not a duration"},
		{ladderYAML, "ttl", "1ms", "ttl 1ms is outside"},
		{ladderYAML, "every", "4s", "less than the ttl"},
		{ladderYAML, "play", "chess", "is none of"},
		{ladderYAML, "connections", "many", "neither shared nor own"},
		{ladderYAML, "edges", "true", "edges are for play idle"},
		{ladderYAML, "stages", "[]", "no stages"},
		{ladderYAML, "stages.0.leases", "0", "stage 0: 0 leases"},
		{ladderYAML, "stages.0.leases", "-1", "stage 0: -1 leases"},
		{ladderYAML, "stages", "[{leases: 5, ramp: 1}, {leases: 4, ramp: 1}]", "stage 1: 4 leases"},
		{ladderYAML, "stages.0.leases", "5000001", "limit is 5000000 agents"},
		{ladderYAML, "candidates", "4611686018427387905", "limit is 5000000 agents"},
		{ladderYAML, "stages.0.ramp", ".nan", "ramp is NaN"},
		{ladderYAML, "stages.0.ramp", ".inf", "ramp is +Inf"},
		{ladderYAML, "stages.0.ramp", "0", "ramp is 0"},
		{ladderYAML, "hand_overs", ".nan", "hand_overs is NaN"},
		{ladderYAML, "hand_overs", "-1", "hand_overs is -1"},
		{ladderYAML, "thresholds", "{lost: .inf}", "threshold lost is no number"},
		{ladderYAML, "fault", "kill", `fault "kill" is none of `},
		{ladderYAML, "faults", "{x: []}", "fault x has 0 actions"},
		{ladderYAML, "faults", "{x: [{do: scare, member: leader}]}", `"scare" is none of cut, disconnect, flood, kill`},
		{ladderYAML, "faults", "{x: [{do: kill, member: queen}]}", `fault x, action 0: member "queen" is none of leader`},
		{ladderYAML, "faults", "{x: [{do: kill, member: leader, count: 2}]}", "it says how many followers"},
		{ladderYAML, "faults", "{x: [{do: kill, member: leader, for: 1s}]}", "kill is not undone"},
		{ladderYAML, "faults", "{x: [{do: saturate}]}", "saturate needs for"},
		{ladderYAML, "faults", "{x: [{do: flood, member: all, work: claims}]}", "flood needs for"},
		{ladderYAML, "faults", "{x: [{do: flood, member: all, work: rain, for: 1s}]}", `work "rain" is none of claims, consul-not-found`},
		{ladderYAML, "faults", "{x: [{do: kill, member: all, work: claims}]}", "for a flood and nothing else"},
		{ladderYAML, "faults", "{x: [{do: flood, member: all, work: claims, for: 1s, times: 101}]}", "times is 101"},
		{ladderYAML, "faults", "{x: [{do: flood, member: all, work: claims, for: 1s, rude: true}]}", "more than 0 of rude clients"},
		{ladderYAML, "faults", "{x: [{do: cut, member: leader, way: up}]}", `way "up" is none of out, in, both`},
		{ladderYAML, "faults", "{x: [{do: slow-disk, member: leader}]}", "delay is 0s"},
		{ladderYAML + "fault: x\nfaults: {x: [{do: stop, member: all, for: 1s}]}\n", "play", "idle", "play idle has no faults"},
		{ladderYAML + "connections: own\n", "stages.0.leases", "300000", "300000 connections"},
		{strings.Replace(ladderYAML, "ladder", "idle", 1), "stages.0.leases", "20000", "20000 connections"},
		{closed, "closed.op", "dance", "is none of"},
		{closed, "closed.workers", "0", "closed.workers must be"},
		{closed, "closed.streams", "5", "streams at most as many"},
		{closed, "closed.batch", "10001", "closed.batch must be"},
		{closed, "closed.rate", ".nan", "closed.rate is NaN"},
		{closed, "closed.rate", ".inf", "closed.rate is +Inf"},
		{closed, "closed", "{op: echo, workers: 4, streams: 2, duration: 1s}", "an echo names nobody"},
		{closed, "closed", "{op: echo, workers: 4, batch: 2, duration: 1s}", "an echo names nobody"},
		{"play: closed\n", "", "", "play closed needs closed"},
		{"", "", "", "EOF"},
		{"---\n", "a", "b", ""},
	} {
		settings := map[string]string{}
		if c.key != "" {
			settings[c.key] = c.value
		}
		_, err := parse("100%s", []byte(c.yaml), settings)
		var e *incumbent.Error
		if !errors.As(err, &e) || e.Kind != incumbent.Invalid || !strings.Contains(e.Message, c.want) || !strings.Contains(e.Message, "100%s") {
			t.Errorf("%s=%s: %v, want Invalid with %q", c.key, c.value, err, c.want)
		}
	}
	for _, ok := range []string{"0", "4"} {
		if _, err := parse("t", []byte("play: closed\nclosed: {op: echo, workers: 4, streams: "+ok+", duration: 1s}\n"), nil); err != nil {
			t.Errorf("echo with %s streams: %v", ok, err)
		}
	}
	if _, err := parse("t", make([]byte, maxScenarioBytes+1), nil); err == nil || !strings.Contains(err.Error(), "limit is") {
		t.Errorf("a scenario that is too large: %v", err)
	}
	if _, err := Load("unheard-of", nil); err == nil || !strings.Contains(err.Error(), "no scenario") {
		t.Errorf("an unknown scenario: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range List() {
		src, err := Source(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src, "ttl", "5s")
	}
	f.Add([]byte(ladderYAML), "stages.0.leases", "9223372036854775807")
	f.Add([]byte("a: &a [*a]"), "a.0", "1")
	f.Fuzz(func(t *testing.T, data []byte, key, value string) {
		sc, err := parse("fuzz", data, map[string]string{key: value})
		if err != nil {
			return
		}
		for _, s := range sc.Stages {
			if sc.Play != "closed" && (s.Leases < 1 || s.Leases > maxAgents || s.Leases*max(1, sc.Candidates) > maxAgents || !perSecond(s.Ramp)) {
				t.Errorf("accepted %+v with %d candidates", s, sc.Candidates)
			}
		}
	})
}

// A scenario that is like another has all of that but what it says itself, and can be changed
// as any other.
func TestAScenarioLikeAnother(t *testing.T) {
	base, err := Load("overload-recover", map[string]string{"scale": "short", "fault": "registrations"})
	if err != nil {
		t.Fatal(err)
	}
	sc, err := Load("consul-flood", map[string]string{"scale": "short"})
	if err != nil {
		t.Fatal(err)
	}
	if sc.Name != "consul-flood" || sc.Description == base.Description || sc.Like != "" {
		t.Errorf("it is %q, like %q: %s", sc.Name, sc.Like, sc.Description)
	}
	sc.Name, sc.Description = base.Name, base.Description
	if !reflect.DeepEqual(sc, base) {
		t.Errorf("%+v, want %+v", sc, base)
	}
	for said, text := range map[string]string{
		"name: x\nlike: nothing\n":                       "no such built-in",
		"name: x\nlike: consul-flood\n":                  "like another itself",
		"name: x\nlike: overload-recover\nnonsense: 1\n": "nonsense",
	} {
		if _, err := parse("x", []byte(said), nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", said, err)
		}
	}
}
