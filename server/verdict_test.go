package server

import (
	"strings"
	"testing"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// shownMembers makes members from words such as "leader", "follower!": one with an
// exclamation mark cannot be reached.
func shownMembers(words string) (out []*apiv1.Member) {
	for w := range strings.FieldsSeq(words) {
		role, silent := strings.CutSuffix(w, "!")
		out = append(out, &apiv1.Member{Role: role, Connected: !silent})
	}
	return out
}

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		look    outlook
		members string
		want    string
	}{
		{outlook{alone: true, ready: true, leader: "n1", leases: 3, connections: 1}, "leader", "healthy: 3 leases held, 1 connection to this member"},
		{outlook{alone: true, ready: true, leader: "n1", leases: 1, connections: 12}, "leader follower follower", "healthy: 1 lease held, 12 connections to this member"},
		{outlook{alone: true, ready: true, leader: "n1", leases: 3}, "leader follower follower!", "serving with care: 2 of 3 members reachable, 3 leases held"},
		{outlook{alone: true, ready: true, leader: "n1", leases: 3}, "leader learner! leaving!", "serving with care: 1 of 2 members reachable, 3 leases held"},
		{outlook{alone: true, ready: true, leader: "n1", remarks: 2}, "leader", "serving with care: 0 leases held, 2 things to look at"},
		{outlook{alone: true, ready: true}, "follower follower! follower!", "no leader, 1 of 3 voters reachable and 2 needed: nothing can be granted or extended"},
		{outlook{alone: true, ready: true}, "follower follower follower!", "no leader: nothing can be granted or extended"},
		{outlook{alone: true}, "follower! candidate learner", "no leader, 1 of 2 voters reachable and 2 needed: nothing can be granted or extended"},
		{outlook{ready: true, leader: "n1", leases: 3, connections: 1, confirmed: 2 * time.Millisecond, age: 20 * time.Millisecond}, "leader follower follower", "healthy: 3 leases held, 1 connection to this member, 3 members heard within 20ms"},
		{outlook{ready: true, leader: "n1", confirmed: 1240 * time.Millisecond}, "leader follower follower", "serving with care: nothing was confirmed here for 1.2s"},
		{outlook{ready: true, leader: "n1", confirmed: 1240 * time.Millisecond}, "leader follower! follower!", "cut off, 1 of 3 voters reachable and 2 needed: nothing can be granted or extended here"},
		{outlook{ready: true, leader: "n1", leases: 3, confirmed: time.Millisecond}, "leader follower! follower!", "serving with care: 1 of 3 members reachable, 3 leases held"},
		{outlook{alone: true}, "follower", "starting: this member is not caught up yet"},
		{outlook{alone: true, draining: true}, "leader", "leaving: this member drains its connections"},
	} {
		tt.look.members = shownMembers(tt.members)
		if got := tt.look.verdict(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.members, got, tt.want)
		}
	}
}
