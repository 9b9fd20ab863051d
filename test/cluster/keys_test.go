package cluster

import (
	"strconv"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

func TestKeysThroughAFollower(t *testing.T) {
	c := start(t, "--members", "3")
	follower := c.others(c.leader())[0]
	outside.Keys(t, follower.URL, c.clientOf(follower))
}

// A watcher of keys whose member is killed, a follower and then the leader, goes on
// at another while the key goes on changing: it misses nothing, sees nothing twice,
// and indexes ascend.
func TestG16_AWatcherOfKeysOutlivesItsMembers(t *testing.T) {
	c := start(t, "--members", "3")
	leader := c.leader()
	followers := c.others(leader)
	follower := followers[0]
	list := strings.Join([]string{follower.URL, leader.URL, followers[1].URL}, ",")
	keys := c.clientOf(c.from(0)...).KV("")
	put := func(i int) {
		t.Helper()
		if _, err := keys.Put(t.Context(), "w/0", []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	put(-1)
	w := outside.WatchKeys(t, list, "w/")
	const changes, ahead = 120, 10 // it lags behind by so many
	for i := range changes {
		switch i {
		case changes / 3: // while the newest changes are on their way to it
			follower.kill(t)
		case changes / 2:
			follower.again(t, nil)
			c.leader()
		case 2 * changes / 3:
			leader.kill(t)
		}
		put(i)
		if i >= ahead {
			w.Expect(strconv.Itoa(i - ahead))
		}
	}
	for i := changes - ahead; i < changes; i++ {
		w.Expect(strconv.Itoa(i))
	}
	w.End()
}
