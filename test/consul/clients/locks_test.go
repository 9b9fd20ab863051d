package clients

import (
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// TestLockIsHeldByOne has two clients contend: the second gets the lock when the first
// lets go, and the key's count of holdings says so.
func TestLockIsHeldByOne(t *testing.T) {
	first, second := connect(t), connect(t)
	a := must(first.LockKey("lock/held"))(t)
	lost := must(a.Lock(nil))(t)
	if lost == nil {
		t.Fatal("the lock was not acquired")
	}
	if _, err := a.Lock(nil); err != api.ErrLockHeld {
		t.Errorf("locked twice: %v", err)
	}
	b := must(second.LockOpts(&api.LockOptions{Key: "lock/held", LockTryOnce: true, LockWaitTime: 50 * time.Millisecond}))(t)
	if got := must(b.Lock(nil))(t); got != nil {
		t.Fatal("the lock has two holders")
	}
	c := must(second.LockKey("lock/held"))(t)
	got := make(chan (<-chan struct{}), 1)
	go func() {
		lost, err := c.Lock(nil)
		if err != nil {
			t.Error(err)
		}
		got <- lost
	}()
	check(t, a.Unlock())
	within(t, "the first one knows that it let go", lost)
	if within(t, "the second one has the lock", got) == nil {
		t.Fatal("the lock was not acquired")
	}
	pair, _, err := first.KV().Get("lock/held", nil)
	check(t, err)
	if pair.LockIndex != 2 || pair.Flags != api.LockFlagValue || pair.Session == "" {
		t.Errorf("the key of a lock that was handed on once: %+v", pair)
	}
	if err := a.Destroy(); err != api.ErrLockInUse {
		t.Errorf("destroyed under its holder: %v", err)
	}
	check(t, c.Unlock())
	check(t, c.Destroy())
	if pair, _, err := first.KV().Get("lock/held", nil); err != nil || pair != nil {
		t.Errorf("the key of a destroyed lock: %+v, %v", pair, err)
	}
}

// TestLockIsLostWithItsSession ends a holder's session behind its back.
func TestLockIsLostWithItsSession(t *testing.T) {
	client := connect(t)
	session, _, err := client.Session().CreateNoChecks(&api.SessionEntry{Name: "lost", LockDelay: time.Millisecond}, nil)
	check(t, err)
	lock := must(client.LockOpts(&api.LockOptions{Key: "lock/lost", Session: session}))(t)
	lost := must(lock.Lock(nil))(t)
	_, err = client.Session().Destroy(session, nil)
	check(t, err)
	within(t, "the holder hears that it lost the lock", lost)
}

// TestLockIsLostWithItsKey has the key deleted.
func TestLockIsLostWithItsKey(t *testing.T) {
	client := connect(t)
	lock := must(client.LockKey("lock/deleted"))(t)
	lost := must(lock.Lock(nil))(t)
	_, err := client.KV().Delete("lock/deleted", nil)
	check(t, err)
	within(t, "the holder hears that it lost the lock", lost)
}

// TestLockOnAForeignKey refuses a key that is no lock's.
func TestLockOnAForeignKey(t *testing.T) {
	client := connect(t)
	_, err := client.KV().Put(&api.KVPair{Key: "lock/foreign", Flags: 1}, nil)
	check(t, err)
	lock := must(client.LockKey("lock/foreign"))(t)
	if _, err := lock.Lock(nil); err != api.ErrLockConflict {
		t.Errorf("a lock on a key of somebody else: %v", err)
	}
}

// TestSemaphore lets two in, and a third when one leaves.
func TestSemaphore(t *testing.T) {
	client := connect(t)
	var held []*api.Semaphore
	for range 2 {
		s := must(client.SemaphorePrefix("semaphore/two", 2))(t)
		if must(s.Acquire(nil))(t) == nil {
			t.Fatal("there was room")
		}
		held = append(held, s)
	}
	tried := must(client.SemaphoreOpts(&api.SemaphoreOptions{Prefix: "semaphore/two", Limit: 2, SemaphoreTryOnce: true, SemaphoreWaitTime: 50 * time.Millisecond}))(t)
	if must(tried.Acquire(nil))(t) != nil {
		t.Fatal("a semaphore of two has three holders")
	}
	third := must(client.SemaphorePrefix("semaphore/two", 2))(t)
	got := make(chan (<-chan struct{}), 1)
	go func() {
		lost, err := third.Acquire(nil)
		if err != nil {
			t.Error(err)
		}
		got <- lost
	}()
	check(t, held[0].Release())
	lost := within(t, "the third one is let in", got)
	if lost == nil {
		t.Fatal("it was not let in")
	}
	other := must(client.SemaphorePrefix("semaphore/two", 3))(t)
	if _, err := other.Acquire(nil); err == nil {
		t.Error("a limit that contradicts the one there")
	}
	check(t, third.Release())
	check(t, held[1].Release())
	check(t, third.Destroy())
}

// TestRenewPeriodic keeps a session alive and ends it in order.
func TestRenewPeriodic(t *testing.T) {
	client := connect(t)
	id, _, err := client.Session().CreateNoChecks(&api.SessionEntry{TTL: "10s"}, nil)
	check(t, err)
	entry, _, err := client.Session().Renew(id, nil)
	check(t, err)
	if entry.ID != id || entry.TTL != "10s" {
		t.Errorf("renewed: %+v", entry)
	}
	done, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- client.Session().RenewPeriodic("10s", id, nil, done) }()
	close(done)
	check(t, within(t, "renewing ends", ended))
	eventually(t, "the session is destroyed", func() bool {
		entry, _, err := client.Session().Info(id, nil)
		return err == nil && entry == nil
	})
	if entry, _, err := client.Session().Renew(id, nil); err != nil || entry != nil {
		t.Errorf("renewed after its end: %+v, %v", entry, err)
	}
}
