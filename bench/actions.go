package bench

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Limits of what is done to servers.
const (
	maxActions = 32
	maxDelay   = 10 * time.Second // of one sync of a slow disk
)

// Action is one thing that is done to the servers, at its time, while the fleet
// goes on.
type Action struct {
	// After is from the end of the last stage's hold. Actions are done one after the other: one that
	// is due while another is being done, or undone, comes later. How much later, at most, a run's
	// fact actions_late_max_seconds says.
	After Duration `yaml:"after"`
	// Do is what: kill (SIGKILL), stop (SIGSTOP), cut (the network between
	// members), restart, wipe (SIGKILL, then back with an empty disk), saturate
	// (busy loops on every core), slow-disk (started again with syncs that take
	// longer; a leader leads again after), strangers (clients that prove nothing, to
	// members of plain or secured listeners), flood (more work than the servers carry),
	// disconnect (all connections of the fleet to the member end at once).
	Do string `yaml:"do"`
	// Member is whom: leader, follower, all, or last (of the action before).
	// Meaningless for saturate.
	Member string `yaml:"member,omitempty"`
	Count  int    `yaml:"count,omitempty"` // followers; 0: one
	// For is how long until it is undone: stop, cut, saturate, strangers, flood. 0: at the end.
	For Duration `yaml:"for,omitempty"`
	// Way is which messages of the member a cut loses: out, in or both.
	Way   string   `yaml:"way,omitempty"`
	Delay Duration `yaml:"delay,omitempty"` // of each sync of a slow disk
	// Of strangers: connections that say nothing, clients that flood, and connections whose
	// message never ends.
	Silent int `yaml:"silent,omitempty"`
	Flood  int `yaml:"flood,omitempty"`
	Slow   int `yaml:"slow,omitempty"`
	// Of a flood: what it consists of, how many times as much as the servers carry (0:
	// the next request when the last is answered, which finds out what they carry), and
	// whether its clients wait a second at most and ask again at once.
	Work  string  `yaml:"work,omitempty"`
	Times float64 `yaml:"times,omitempty"`
	Rude  bool    `yaml:"rude,omitempty"`
}

// actions are the names of what can be done, and whether it can be undone.
var actions = map[string]struct{ lasts bool }{
	"kill": {}, "stop": {lasts: true}, "cut": {lasts: true}, "restart": {}, "wipe": {}, "saturate": {lasts: true}, "slow-disk": {}, "strangers": {lasts: true}, "flood": {lasts: true},
	"disconnect": {},
}

// whom are the names of members an action can be done to.
var whom = []string{"leader", "follower", "all", "last"}

// script is what is done to the servers in this run, by time. nil: nothing.
func (sc *Scenario) script() []Action {
	script := slices.Clone(sc.Faults[sc.Fault])
	slices.SortStableFunc(script, func(a, b Action) int { return cmp.Compare(a.After, b.After) })
	return script
}

func (sc *Scenario) validateFaults() error {
	if _, ok := sc.Faults[sc.Fault]; !ok && sc.Fault != "" {
		return fmt.Errorf("fault %q is none of %s", sc.Fault, strings.Join(sortedKeys(sc.Faults), ", "))
	}
	if sc.Fault != "" && sc.Play != "ladder" && sc.Play != "agents" {
		return fmt.Errorf("play %s has no faults", sc.Play)
	}
	for _, name := range sortedKeys(sc.Faults) {
		if n := len(sc.Faults[name]); n < 1 || n > maxActions {
			return fmt.Errorf("fault %s has %d actions, allowed are 1 to %d", name, n, maxActions)
		}
		for i, a := range sc.Faults[name] {
			if err := a.validate(); err != nil {
				return fmt.Errorf("fault %s, action %d: %w", name, i, err)
			}
		}
	}
	return nil
}

func (a Action) validate() error {
	kind, known := actions[a.Do]
	switch {
	case !known:
		return fmt.Errorf("%q is none of %s", a.Do, strings.Join(sortedKeys(actions), ", "))
	case a.Do != "saturate" && !slices.Contains(whom, a.Member):
		return fmt.Errorf("member %q is none of %s", a.Member, strings.Join(whom, ", "))
	case a.Count < 0 || a.Count > 0 && a.Member != "follower":
		return fmt.Errorf("count is %d; it says how many followers", a.Count)
	case a.For != 0 && !kind.lasts:
		return fmt.Errorf("%s is not undone: leave for out", a.Do)
	case (a.Do == "saturate" || a.Do == "flood") && a.For == 0:
		return fmt.Errorf("%s needs for", a.Do)
	case (floods[a.Work] != nil) != (a.Do == "flood") || a.Do != "flood" && (a.Work != "" || a.Times != 0 || a.Rude):
		return fmt.Errorf("work %q is none of %s, for a flood and nothing else", a.Work, strings.Join(sortedKeys(floods), ", "))
	case math.IsNaN(a.Times) || a.Times < 0 || a.Times > maxFloodTimes || a.Rude && a.Times == 0:
		return fmt.Errorf("times is %v; it must be 0 to %d, and more than 0 of rude clients", a.Times, maxFloodTimes)
	case (a.Silent != 0 || a.Flood != 0 || a.Slow != 0) != (a.Do == "strangers"):
		return fmt.Errorf("silent is %d, flood %d and slow %d; strangers, and nothing else, need one of them", a.Silent, a.Flood, a.Slow)
	case a.Silent < 0 || a.Silent > maxSilent || a.Flood < 0 || a.Flood > maxFlooders || a.Slow < 0 || a.Slow > maxSlow:
		return fmt.Errorf("silent is %d, flood %d and slow %d; limits are %d, %d and %d", a.Silent, a.Flood, a.Slow, maxSilent, maxFlooders, maxSlow)
	case a.Do == "cut" && !slices.Contains([]string{"out", "in", "both"}, a.Way):
		return fmt.Errorf("way %q is none of out, in, both", a.Way)
	case a.Do == "slow-disk" && (a.Delay <= 0 || time.Duration(a.Delay) > maxDelay):
		return fmt.Errorf("delay is %v; it must be more than 0 and at most %v", time.Duration(a.Delay), maxDelay)
	}
	return nil
}

// cuts reports whether members must speak through proxies.
func (sc *Scenario) cuts() bool {
	return slices.ContainsFunc(sc.script(), func(a Action) bool { return a.Do == "cut" })
}

// flooded reports whether a flood comes through a door.
func (sc *Scenario) flooded(door string) bool {
	return slices.ContainsFunc(sc.script(), func(a Action) bool { return a.Do == "flood" && floods[a.Work].door == door })
}

// besieged reports whether strangers come: to all doors there are.
func (sc *Scenario) besieged() bool {
	return slices.ContainsFunc(sc.script(), func(a Action) bool { return a.Do == "strangers" })
}
