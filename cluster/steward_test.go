package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
)

// The steward's decisions, one line each: who votes, who learns, who is recorded
// (a star: stays a learner), who is caught up, and what is to be done. Member 1
// leads.
func TestStewardDecides(t *testing.T) {
	many := []uint64{1, 2, 3, 4, 5, 6, 7}
	var others []uint64 // with three voters as many as there may be
	recorded := ""      // these, and two of the voters
	for id := uint64(4); id <= core.MaxMembers; id++ {
		others = append(others, id)
		recorded += fmt.Sprintf("%d* ", id)
	}
	recorded += "1 2 "
	for name, tt := range map[string]struct {
		voters, learners []uint64
		recorded         string
		caughtUp         []uint64
		secretless       []uint64
		unwantedFor      time.Duration // since when voters have been unwanted
		active           []uint64      // voters that are heard of
		gone             bool
		want             string
	}{
		"alone":                         {voters: []uint64{1}, recorded: "1", want: ""},
		"before it recorded itself":     {voters: []uint64{1}, learners: []uint64{9}, recorded: "", want: ""},
		"a newcomer":                    {voters: []uint64{1}, recorded: "1 2", want: "2 learner"},
		"two newcomers":                 {voters: []uint64{1}, recorded: "1 2 3*", want: "2 learner, 3 learner"},
		"a learner that is behind":      {voters: []uint64{1}, learners: []uint64{2}, recorded: "1 2", want: ""},
		"a learner that is caught up":   {voters: []uint64{1}, learners: []uint64{2}, recorded: "1 2", caughtUp: []uint64{2}, want: "2 voter"},
		"a learner without the secret":  {voters: []uint64{1}, learners: []uint64{2}, recorded: "1 2", caughtUp: []uint64{2}, secretless: []uint64{2}, want: ""},
		"one that stays a learner":      {voters: []uint64{1}, learners: []uint64{2}, recorded: "1 2*", caughtUp: []uint64{2}, want: ""},
		"one after the other":           {voters: []uint64{1}, learners: []uint64{2, 3}, recorded: "1 2 3", caughtUp: []uint64{2, 3}, want: "2 voter"},
		"no eighth voter":               {voters: many, learners: []uint64{8}, recorded: "1 2 3 4 5 6 7 8", caughtUp: []uint64{8}, want: ""},
		"an eighth for one that goes":   {voters: many, learners: []uint64{8}, recorded: "1 2 3 4 5 6 8", caughtUp: []uint64{8}, want: "7 gone, 8 voter"},
		"a learner that was removed":    {voters: []uint64{1}, learners: []uint64{2}, recorded: "1", caughtUp: []uint64{2}, want: "2 gone"},
		"a voter that was removed":      {voters: []uint64{1, 2, 3}, recorded: "1 2", want: "3 gone"},
		"two voters, one after another": {voters: []uint64{1, 2, 3}, recorded: "1", want: "2 gone"},
		"replaced: a newcomer first":    {voters: []uint64{1, 2, 3}, recorded: "1 2 4", want: "4 learner"},
		"replaced: not caught up yet":   {voters: []uint64{1, 2, 3}, learners: []uint64{4}, recorded: "1 2 4", want: ""},
		"replaced: it lives, and stops": {voters: []uint64{1, 2, 3}, learners: []uint64{4}, recorded: "1 2 4", active: []uint64{2, 3}, want: "3 gone"},
		"it lives, and is needed":       {voters: []uint64{1, 2, 3}, learners: []uint64{4}, recorded: "1 2 4", active: []uint64{3}, want: ""},
		"it lives, another is silent":   {voters: []uint64{1, 2, 3, 4}, learners: []uint64{5}, recorded: "1 4 5", active: []uint64{3, 4}, want: "3 gone"},
		"silent, then one that lives":   {voters: []uint64{1, 2, 3, 4}, recorded: "1 4", active: []uint64{2, 4}, want: "3 gone"},
		"one of two that lives":         {voters: []uint64{1, 2}, learners: []uint64{4}, recorded: "1 4", active: []uint64{2}, want: "2 gone"},
		"replaced: in one change":       {voters: []uint64{1, 2, 3}, learners: []uint64{4}, recorded: "1 2 4", caughtUp: []uint64{4}, want: "3 gone, 4 voter"},
		"replaced: there is no room":    {voters: []uint64{1, 2, 3}, learners: others, recorded: recorded + "99", want: "3 gone"},
		"no room, but it lives":         {voters: []uint64{1, 2, 3}, learners: others, recorded: recorded + "99", active: []uint64{3}, want: ""},
		"there is room for one":         {voters: []uint64{1, 2, 3}, learners: others[1:], recorded: recorded[3:] + "98 99", want: "98 learner"},
		"replaced: it never catches up": {voters: []uint64{1, 2, 3}, learners: []uint64{4}, recorded: "1 2 4", unwantedFor: replaceWithin, want: "3 gone"},
		"a learner takes no seat":       {voters: []uint64{1, 2, 3}, learners: []uint64{4}, recorded: "1 2 4*", caughtUp: []uint64{4}, want: "3 gone"},
		"it lives, needed for long":     {voters: []uint64{1, 2, 3}, learners: []uint64{4}, recorded: "1 2 4", active: []uint64{3}, unwantedFor: replaceWithin, want: ""},
		"it lives, and nobody comes":    {voters: []uint64{1, 2, 3}, recorded: "1 2", active: []uint64{3}, want: ""},
		"all were removed":              {voters: []uint64{1, 2}, recorded: "", active: []uint64{2}, gone: true, want: ""},
		"all were, and one comes":       {voters: []uint64{1, 2}, recorded: "4", active: []uint64{2}, gone: true, want: "4 learner"},
		"all were, and one is there":    {voters: []uint64{1, 2}, learners: []uint64{4}, recorded: "4", active: []uint64{2}, caughtUp: []uint64{4}, gone: true, want: "4 voter"},
		"the leader was removed":        {voters: []uint64{1, 2, 3}, recorded: "2 3", active: []uint64{2, 3}, gone: true, want: "hand over"},
		"it was, and who stays is down": {voters: []uint64{1, 2, 3}, recorded: "3", active: []uint64{2}, gone: true, want: ""},
		"the same, and one comes":       {voters: []uint64{1, 2, 3}, recorded: "3 4", active: []uint64{2}, gone: true, want: "4 learner"},
		"the last voter was removed":    {voters: []uint64{1}, recorded: "", gone: true, want: ""},
	} {
		c := census{
			self: 1, voters: tt.voters, learners: tt.learners, commit: 5000, gone: tt.gone,
			progress: map[uint64]node.PeerStatus{}, unwanted: map[uint64]time.Duration{}, secretless: map[uint64]bool{},
		}
		for _, id := range tt.secretless {
			c.secretless[id] = true
		}
		for word := range strings.FieldsSeq(tt.recorded) {
			var id uint64
			_, _ = fmt.Sscan(strings.TrimSuffix(word, "*"), &id)
			c.members = append(c.members, core.Member{ID: id, Learner: strings.HasSuffix(word, "*")})
		}
		for _, id := range tt.caughtUp {
			c.progress[id] = node.PeerStatus{ID: id, Active: true, Match: 5000 - caughtUpWithin}
		}
		for _, id := range tt.active {
			c.progress[id] = node.PeerStatus{ID: id, Active: true, Match: 5000}
		}
		for _, id := range tt.voters {
			c.unwanted[id] = tt.unwantedFor
		}
		if got := stepText(c.decide()); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func stepText(s stewardStep) string {
	if s.handOver {
		return "hand over"
	}
	var parts []string
	for _, c := range s.changes {
		parts = append(parts, fmt.Sprintf("%d %v", c.ID, c.Role))
	}
	return strings.Join(parts, ", ")
}

// Whoever is silent, gets a snapshot or is too far behind is not caught up.
func TestStewardWaitsForWhoIsBehind(t *testing.T) {
	for name, p := range map[string]node.PeerStatus{
		"silent":       {Match: 5000},
		"on snapshots": {Match: 5000, Active: true, Snapshot: true},
		"far behind":   {Match: 5000 - caughtUpWithin - 1, Active: true},
	} {
		c := census{
			self: 1, voters: []uint64{1}, learners: []uint64{2}, commit: 5000, members: []core.Member{{ID: 1}, {ID: 2}},
			progress: map[uint64]node.PeerStatus{2: p},
		}
		if got := stepText(c.decide()); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
