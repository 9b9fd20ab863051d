package client

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func TestKeysAndValues(t *testing.T) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	ctx, keys := testContext(t), c.KV("")
	if _, err := keys.Get(ctx, "x"); incumbent.KindOf(err) != incumbent.NotFound {
		t.Errorf("nothing is there: %v", err)
	}
	first, err := keys.Put(ctx, "x", []byte("a"), Flags(7), IfIndex(0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = keys.Put(ctx, "x", []byte("b"), IfIndex(0))
	if found := FoundEntry(err); incumbent.KindOf(err) != incumbent.Conflict || string(found.GetValue()) != "a" {
		t.Errorf("%v, found %v", err, found)
	}
	if _, err = keys.Put(ctx, "x", []byte("b"), IfValue([]byte("a"))); err != nil {
		t.Error(err)
	}
	if err := keys.DeleteIf(ctx, "x", first); incumbent.KindOf(err) != incumbent.Conflict {
		t.Error(err)
	}
	if _, err := c.KV("other").Get(ctx, "x"); incumbent.KindOf(err) != incumbent.NotFound {
		t.Errorf("another namespace: %v", err)
	}
	for i := range 5 {
		if _, err := keys.Put(ctx, fmt.Sprint("tree/", i), bytes.Repeat([]byte{1}, 400<<10)); err != nil {
			t.Fatal(err)
		}
	}
	var listed []string
	pages := 0
	err = keys.List(ctx, &apiv1.ListKeysRequest{Prefix: "tree/"}, func(p *apiv1.ListKeysResponse) error {
		pages++
		for _, e := range p.Entries {
			listed = append(listed, e.Key)
		}
		return nil
	})
	if err != nil || len(listed) != 5 || pages != 3 {
		t.Errorf("%v on %d pages, %v", listed, pages, err)
	}
	if n, err := keys.DeleteTree(ctx, "tree/"); err != nil || n != 5 {
		t.Errorf("%d, %v", n, err)
	}
	if was, err := keys.Delete(ctx, "x"); err != nil || !was {
		t.Errorf("%v, %v", was, err)
	}
	if was, err := keys.Delete(ctx, "x"); err != nil || was {
		t.Errorf("again: %v, %v", was, err)
	}
}

func TestKeysAreLockedBySessions(t *testing.T) {
	c := clientOf(t, startServer(t, serverConfig(t)).URL())
	ctx, keys := testContext(t), c.KV("")
	mine := openSession(t, c, SessionConfig{TTL: time.Minute})
	other := openSession(t, c, SessionConfig{TTL: time.Minute})
	e, err := keys.Lock(ctx, "l", []byte("a"), mine.ID(), LockOptions{DeleteOnEnd: true})
	if err != nil || e.Session != mine.ID().String() || e.LockIndex != 1 {
		t.Fatalf("%v, %v", e, err)
	}
	_, err = keys.Lock(ctx, "l", nil, other.ID(), LockOptions{})
	if incumbent.KindOf(err) != incumbent.Held || FoundEntry(err).GetSession() != mine.ID().String() {
		t.Errorf("%v, found %v", err, FoundEntry(err))
	}
	if err := keys.Unlock(ctx, "l", nil, other.ID()); incumbent.KindOf(err) != incumbent.NotHolder {
		t.Error(err)
	}
	if err := keys.Unlock(ctx, "l", []byte("done"), mine.ID()); err != nil {
		t.Error(err)
	}
	if e, err := keys.Lock(ctx, "l", nil, other.ID(), LockOptions{}); err != nil || e.LockIndex != 2 {
		t.Errorf("%v, %v", e, err)
	}
}
