package player

import (
	"testing"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// entryAt is key "a" as it was stored at an index.
func entryAt(index uint64, value, session string) *pb.KeyValue {
	e := &pb.KeyValue{Namespace: "default", Key: "a", Value: []byte(value), CreatedIndex: 10, ModifiedIndex: index, Session: session}
	if session != "" {
		e.LockIndex = 1
	}
	return e
}

// tellKeys tells of "a": stored at 10, locked at 20, deleted at 30.
func tellKeys(t *keyline) {
	stored, locked := entryAt(10, "v", ""), entryAt(20, "w", "s")
	for _, e := range []*pb.KeyEvent{
		{Index: 10, What: "put", Entry: stored}, {Index: 20, What: "locked", Previous: stored, Entry: locked}, {Index: 30, What: "deleted", Previous: locked},
	} {
		t.add(&pb.WatchKeysResponse{ProgressIndex: e.Index, Events: []*pb.KeyEvent{e}})
	}
	t.add(&pb.WatchKeysResponse{ProgressIndex: 50})
}

func TestTheKeylineTellsRightFromWrong(t *testing.T) {
	stored, locked := entryAt(60, "v", ""), entryAt(60, "v", "s")
	stored.CreatedIndex, locked.CreatedIndex = 60, 60
	for name, c := range map[string]struct {
		event *pb.KeyEvent
		want  bool
	}{
		"stored":                     {&pb.KeyEvent{Index: 60, What: "put", Entry: stored}, true},
		"locked":                     {&pb.KeyEvent{Index: 60, What: "locked", Entry: locked}, true},
		"locked, and called stored":  {&pb.KeyEvent{Index: 60, What: "put", Entry: locked}, false},
		"an index that falls":        {&pb.KeyEvent{Index: 40, What: "put", Entry: stored}, false},
		"what was not there":         {&pb.KeyEvent{Index: 60, What: "put", Entry: stored, Previous: entryAt(20, "w", "s")}, false},
		"deleted, and was not there": {&pb.KeyEvent{Index: 60, What: "deleted", Previous: entryAt(20, "w", "s")}, false},
		"stored at another index":    {&pb.KeyEvent{Index: 60, What: "put", Entry: entryAt(59, "v", "")}, false},
	} {
		right := true
		line := newKeyline(func(string, ...any) { right = false })
		tellKeys(line)
		line.add(&pb.WatchKeysResponse{ProgressIndex: 60, Events: []*pb.KeyEvent{c.event}})
		if right != c.want {
			t.Errorf("%s: found right: %v", name, right)
		}
	}
}

func TestTheJudgeOfKeysTellsRightFromWrong(t *testing.T) {
	conflict, held := &pb.Error{Kind: incumbent.Conflict.String()}, &pb.Error{Kind: incumbent.Held.String()}
	absent := &pb.PutRequest{Key: "a", Value: []byte("v"), Condition: &pb.PutRequest_IfIndex{}}
	list := func(entries ...*pb.KeyValue) func(*call) {
		return func(c *call) {
			c.answeredList(&pb.ListKeysRequest{}, &pb.ListKeysResponse{Index: 15, ModifiedIndex: 10, Entries: entries}, nil, true)
		}
	}
	get := func(index uint64, e *pb.KeyValue) func(*call) {
		return func(c *call) {
			c.answeredGet(&pb.GetKeyRequest{Key: "a"}, &pb.GetKeyResponse{Index: index, Entry: e}, nil, true)
		}
	}
	remove := func(index uint64, n uint32) func(*call) {
		return func(c *call) {
			c.answeredDelete(&pb.DeleteRequest{Key: "a"}, &pb.DeleteResponse{Index: index, Deleted: n}, nil, true)
		}
	}
	for name, c := range map[string]struct {
		floor, later uint64
		call         func(*call)
		want         bool
	}{
		"stored where nothing was": {5, 12, func(c *call) {
			c.answeredPut(absent, &pb.PutResponse{Index: 10, Entry: entryAt(10, "", "")}, nil, true)
		}, true},
		"stored, and nobody was told": {12, 17, func(c *call) {
			c.answeredPut(absent, &pb.PutResponse{Index: 15, Entry: entryAt(15, "", "")}, nil, true)
		}, false},
		"stored where something was": {12, 22, func(c *call) {
			c.answeredLock(&pb.LockRequest{Key: "a", Value: []byte("w"), Session: "s"}, &pb.LockResponse{Index: 20, Entry: entryAt(20, "", "s")}, nil, true)
			c.keyBefore("locked", "a", 20, func(was *pb.KeyValue) bool { return was == nil })
		}, false},
		"refused where nothing was": {32, 35, func(c *call) { c.answeredPut(absent, nil, conflict, true) }, false},
		"held where nobody has it":  {12, 17, func(c *call) { c.answeredLock(&pb.LockRequest{Key: "a", Session: "s"}, nil, held, true) }, false},
		"read as it was":            {12, 17, get(15, entryAt(10, "v", "")), true},
		"read as it was before":     {22, 25, get(25, entryAt(10, "v", "")), false},
		"read from the past":        {22, 25, get(15, entryAt(10, "v", "")), false},
		"listed":                    {12, 17, list(entryAt(10, "v", "")), true},
		"a list that lacks a key":   {12, 17, list(), false},
		"deleted":                   {25, 32, remove(30, 1), true},
		"deleted, and still there":  {12, 17, remove(15, 1), false},
		"nothing to delete":         {32, 35, remove(33, 0), true},
		"nothing, and it was there": {12, 17, remove(15, 0), false},
	} {
		right := true
		b := newBook(func(string, ...any) { right = false })
		tellKeys(b.keys)
		b.begin("before").at(c.floor)
		c.call(b.begin("call"))
		b.begin("later").at(c.later)
		b.settle(map[scope]*timeline{native: newTimeline(native, t.Errorf)}, 50)
		if right != c.want {
			t.Errorf("%s: found right: %v", name, right)
		}
	}
}
