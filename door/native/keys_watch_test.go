//go:build unix

package native

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/watch"
)

func watchKeysFrame(id uint64, r *pb.WatchKeysRequest) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_WatchKeys{WatchKeys: r}}
}

// below watches all keys of a namespace that begin with a prefix.
func below(prefix string, after uint64) *pb.WatchKeysRequest {
	return &pb.WatchKeysRequest{Key: prefix, Prefix: true, AfterIndex: after}
}

// overKeys are the ways to watch: each returns what gives the next message, or the
// error that the watch ended with.
var overKeys = map[string]func(m *member, r *pb.WatchKeysRequest) func() (*pb.WatchKeysResponse, error){
	"stream": func(m *member, r *pb.WatchKeysRequest) func() (*pb.WatchKeysResponse, error) {
		w := m.dial()
		w.send(watchKeysFrame(7, r))
		return func() (*pb.WatchKeysResponse, error) {
			f := w.next()
			if f.Id != 7 {
				m.tb.Fatalf("got %v", f)
			}
			if k, _ := incumbent.ParseKind(f.Error.GetKind()); f.Error != nil {
				return nil, incumbent.Errorf(k, "%s", f.Error.Message)
			}
			return f.GetWatchKeys(), nil
		}
	},
	"proto": keyCalls(connect.WithClientOptions()),
	"json":  keyCalls(connect.WithProtoJSON()),
	"grpc":  keyCalls(connect.WithGRPC()),
}

func keyCalls(o connect.ClientOption) func(m *member, r *pb.WatchKeysRequest) func() (*pb.WatchKeysResponse, error) {
	return func(m *member, r *pb.WatchKeysRequest) func() (*pb.WatchKeysResponse, error) {
		stream, err := m.keys(o).Watch(m.tb.Context(), connect.NewRequest(r))
		if err != nil {
			m.tb.Fatal(err)
		}
		m.tb.Cleanup(func() { stream.Close() })
		return func() (*pb.WatchKeysResponse, error) {
			if stream.Receive() {
				return stream.Msg(), nil
			}
			return nil, incumbent.Errorf(kindOf(stream.Err()), "%w", stream.Err())
		}
	}
}

// composedKeys is the state that a watcher of keys has put together.
type composedKeys struct {
	t        *testing.T
	entries  map[string]*pb.KeyValue
	progress uint64
	pieces   int // of the snapshot
}

func (c *composedKeys) take(r *pb.WatchKeysResponse) {
	c.t.Helper()
	if r.Snapshot {
		if c.pieces++; r.First != (c.pieces == 1) {
			c.t.Fatalf("piece %d of a snapshot: first is %v", c.pieces, r.First)
		}
	}
	for _, e := range r.Events {
		key := e.Entry.GetKey()
		if e.Entry == nil {
			key = e.Previous.GetKey()
		}
		switch was := c.entries[key]; {
		case r.Snapshot && (e.What != present || was != nil || e.Previous != nil):
			c.t.Fatalf("a snapshot shows %v", e)
		case !r.Snapshot && e.Index <= c.progress:
			c.t.Fatalf("event %d after everything up to %d", e.Index, c.progress)
		case !r.Snapshot && !proto.Equal(was, e.Previous):
			c.t.Fatalf("event %d: it was %v, the watcher has %v", e.Index, e.Previous, was)
		}
		if c.entries[key] = e.Entry; e.Entry == nil {
			delete(c.entries, key)
		}
	}
	c.progress = max(c.progress, r.ProgressIndex)
}

// A watch of keys is what is there and then every change with what was, in order,
// once: over each protocol it composes to what a list gives, and resumes where it
// was.
func TestG15_G16_WatchOfKeysComposes(t *testing.T) {
	m := newMember(t)
	random := rand.New(rand.NewPCG(1, 2))
	busy := func() (last uint64) {
		for i := range 150 {
			key := fmt.Sprint("p/", random.IntN(20))
			if random.IntN(3) > 0 {
				last = m.mustPut(&pb.PutRequest{Key: key, Value: fmt.Append(nil, i), Flags: uint64(i)}).Index
				continue
			}
			r, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: key, Tree: i%2 == 0}))
			if err != nil {
				t.Fatal(err)
			}
			last = max(last, r.Msg.Index)
			m.mustPut(&pb.PutRequest{Key: fmt.Sprint("q/", i)})                     // of no interest
			m.mustPut(&pb.PutRequest{Key: fmt.Sprint("p/", i), Namespace: "other"}) // nor this
		}
		return m.mustPut(&pb.PutRequest{Key: "p/last", Value: []byte("x")}).Index
	}
	busy()
	for name, open := range overKeys {
		t.Run(name, func(t *testing.T) {
			c := &composedKeys{t: t, entries: map[string]*pb.KeyValue{}}
			follow := func(next func() (*pb.WatchKeysResponse, error), until uint64) {
				t.Helper()
				for c.progress < until {
					r, err := next()
					if err != nil {
						t.Fatal(err)
					}
					c.take(r)
				}
				list, err := m.keys().List(t.Context(), connect.NewRequest(&pb.ListKeysRequest{Prefix: "p/"}))
				if err != nil {
					t.Fatal(err)
				}
				if len(list.Msg.Entries) != len(c.entries) {
					t.Fatalf("%d entries, the watcher has %d", len(list.Msg.Entries), len(c.entries))
				}
				for _, e := range list.Msg.Entries {
					if !proto.Equal(e, c.entries[e.Key]) {
						t.Errorf("%v, the watcher has %v", e, c.entries[e.Key])
					}
				}
			}
			follow(open(m, below("p/", 0)), busy())
			end := busy()
			follow(open(m, below("p/", c.progress)), end)
			if c.pieces != 1 {
				t.Errorf("%d pieces of snapshots", c.pieces)
			}
		})
	}
}

// Values as large as they may be come one change at a time, what is there comes an
// entry at a time; who wants fewer values has messages that are small, and made once.
func TestG18_G21_LargeValuesAreTheReadersChoice(t *testing.T) {
	m := newMember(t)
	m.group.Hub().SetLimits(watch.Limits{HistoryBytes: 64 << 20})
	large := bytes.Repeat([]byte("v"), kv.MaxValueBytes)
	before := m.mustPut(&pb.PutRequest{Key: "p/0", Value: large}).Index
	for i := range 4 {
		m.mustPut(&pb.PutRequest{Key: fmt.Sprint("p/", i), Value: large})
		m.mustPut(&pb.PutRequest{Key: "p/0", Value: large})
	}
	end := m.hubIndex()
	for name, open := range overKeys {
		for values, most := range map[pb.WatchedValues]int{
			pb.WatchedValues_WATCHED_VALUES_UNSPECIFIED: 2*len(large) + pullBytes,
			pb.WatchedValues_WATCHED_VALUES_BOTH:        2*len(large) + pullBytes,
			pb.WatchedValues_WATCHED_VALUES_NEW:         len(large) + pullBytes,
			pb.WatchedValues_WATCHED_VALUES_NONE:        pullBytes,
		} {
			t.Run(fmt.Sprint(name, " ", values), func(t *testing.T) {
				r := below("p/", before)
				r.Values = values
				changes := 0
				for next, at := open(m, r), uint64(0); at < end; {
					got, err := next()
					if err != nil {
						t.Fatal(err)
					}
					if n := proto.Size(got); n > most {
						t.Errorf("a message of %d bytes, limit is %d", n, most)
					}
					at = max(at, got.ProgressIndex)
					changes += len(got.Events)
					for _, e := range got.Events {
						is, was := len(e.Entry.GetValue()), len(e.Previous.GetValue())
						both := values <= pb.WatchedValues_WATCHED_VALUES_BOTH && e.Previous != nil
						if (is > 0) != (values != pb.WatchedValues_WATCHED_VALUES_NONE) || (was > 0) != both {
							t.Errorf("an event has values of %d and %d bytes", is, was)
						}
					}
				}
				if changes != 8 {
					t.Errorf("%d changes", changes)
				}
				r.AfterIndex = 0
				c := &composedKeys{t: t, entries: map[string]*pb.KeyValue{}}
				for next := open(m, r); c.progress < end; {
					got, err := next()
					if err != nil {
						t.Fatal(err)
					}
					if n := proto.Size(got); n > most {
						t.Errorf("a piece of %d bytes, limit is %d", n, most)
					}
					c.take(got)
				}
				if wants := values != pb.WatchedValues_WATCHED_VALUES_NONE; len(c.entries) != 4 || wants != (c.pieces == 4) {
					t.Errorf("%d entries in %d pieces", len(c.entries), c.pieces)
				}
			})
		}
	}
	cost := m.group.Hub().Stats().HistoryBytes
	for _, open := range overKeys {
		r := below("p/", before)
		r.Values = pb.WatchedValues_WATCHED_VALUES_NONE
		for next, at := open(m, r), uint64(0); at < end; {
			got, err := next()
			if err != nil {
				t.Fatal(err)
			}
			at = max(at, got.ProgressIndex)
		}
	}
	if now := m.group.Hub().Stats().HistoryBytes; now != cost {
		t.Errorf("history costs %d bytes, and %d once more have read it", cost, now)
	}
}

// What readers of large values hold that do not read is a message or two each, and
// those that come too late are cut off with the index to resume from.
func TestG18_ReadersOfLargeValuesThatDoNotRead(t *testing.T) {
	const readers, changes = 5, 40 // which the kernel does not take all
	m := newMember(t)
	m.park.SetLimits(park.Limits{MaxQueuedBytes: park.DefaultMaxQueuedBytes, WriteTimeout: time.Hour})
	value := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, kv.MaxValueBytes) }
	before := m.mustPut(&pb.PutRequest{Key: "p/0", Value: value(0)}).Index
	quick := overKeys["stream"](m, below("p/", before))
	if _, err := quick(); err != nil {
		t.Fatal(err)
	}
	var stuck []*wire
	for range readers {
		w := m.dial()
		w.send(watchKeysFrame(7, below("p/", before)))
		stuck = append(stuck, w)
	}
	for m.group.Hub().Stats().Readers < ownReaders+1+readers { // and the quick one
		runtime.Gosched()
	}
	for i := range changes {
		end := m.mustPut(&pb.PutRequest{Key: "p/0", Value: value(i + 1)}).Index
		for at := uint64(0); at < end; {
			r, err := quick()
			if err != nil {
				t.Fatal(err)
			}
			at = r.ProgressIndex
		}
	}
	if held := m.park.Stats().QueuedBytes; held > readers*(MaxWatchBacklog+3*kv.MaxValueBytes) {
		t.Errorf("%d readers have the connections hold %d bytes", readers, held)
	}
	for _, w := range stuck {
		for {
			f := w.next()
			if f.Error == nil {
				continue
			}
			if f.Error.Kind != "compacted" || !strings.Contains(f.Error.Message, "are gone") {
				t.Fatalf("got %v", f.Error)
			}
			break
		}
	}
}

func TestG14_G16_WatchOfKeysFromWhatIsNotThere(t *testing.T) {
	m := newMember(t)
	at := m.mustPut(&pb.PutRequest{Key: "x"}).Index
	for name, open := range overKeys {
		if r, err := open(m, &pb.WatchKeysRequest{Key: "x", AfterIndex: at + 1})(); incumbent.KindOf(err) != incumbent.Compacted || !strings.Contains(err.Error(), "does not exist yet") {
			t.Errorf("%s, an index to come: %v, %v", name, r, err)
		}
	}
	m.group.Hub().SetLimits(watch.Limits{HistoryBytes: 1})
	m.mustPut(&pb.PutRequest{Key: "x"})
	m.mustPut(&pb.PutRequest{Key: "x"})
	for name, open := range overKeys {
		if r, err := open(m, &pb.WatchKeysRequest{Key: "x", AfterIndex: at})(); incumbent.KindOf(err) != incumbent.Compacted || !strings.Contains(err.Error(), "are gone") {
			t.Errorf("%s, history that is gone: %v, %v", name, r, err)
		}
	}
}

func TestStreamsEndWatchesOfKeys(t *testing.T) {
	m := newMember(t)
	w := m.dial()
	w.send(watchKeysFrame(7, &pb.WatchKeysRequest{Key: "x"}))
	if f := w.next(); !f.GetWatchKeys().GetSnapshot() {
		t.Fatalf("got %v", f)
	}
	w.ok(&pb.ClientFrame{Id: 8, Request: &pb.ClientFrame_Unwatch{Unwatch: &pb.Unwatch{Id: 7}}})
	m.mustPut(&pb.PutRequest{Key: "x"})
	w.ok(beatMessage(9)) // and nothing was told
	if f := w.ask(watchKeysFrame(10, &pb.WatchKeysRequest{})); f.Error.GetKind() != "invalid" {
		t.Errorf("no key: %v", f)
	}
	m.guard.principal = auth.Principal{Name: "o", Kind: auth.Observer}
	if f := m.dial().ask(watchKeysFrame(11, &pb.WatchKeysRequest{Key: "x"})); f.Error.GetKind() != "denied" {
		t.Errorf("an observer: %v", f)
	}
	if resp, _ := m.post("KeyValueService/Watch", ""); resp.StatusCode == http.StatusOK {
		t.Errorf("a unary call: HTTP %d", resp.StatusCode)
	}
	if _, err := overKeys["grpc"](m, &pb.WatchKeysRequest{Key: "x"})(); incumbent.KindOf(err) != incumbent.Denied {
		t.Errorf("an observer's call: %v", err)
	}
}

// storeMany stores keys in one step, in each of which there is nothing.
func (m *member) storeMany(names ...string) (index uint64) {
	m.tb.Helper()
	var puts []core.Command
	for _, name := range names {
		puts = append(puts, kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "default", Name: name}})
	}
	r := m.group.Do(core.TxnCommand{Then: puts})
	if r.Err != nil {
		m.tb.Fatal(r.Err)
	}
	return uint64(r.Index)
}

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s%05d", prefix, i))
	}
	return names
}

// A watch that catches up looks at a slice of what is there at a time, also where there is
// nothing to show, and shows exactly what has changed.
func TestG16_CatchingUpIsDoneInSlices(t *testing.T) {
	const full = 2
	m := newMember(t)
	names := numbered("k/", full*ScanSlice+100)
	since := m.storeMany(names...)
	changed := []string{names[ScanSlice+7], names[len(names)-1]}
	for _, name := range changed {
		m.store(name, "1")
	}
	last := m.store("other", "1")

	records := &keyRecords{key: kv.Key{Namespace: "default", Name: "k/"}, prefix: true}
	f := m.door.former(nil)
	if !records.begin(f.view, incumbent.Index(since)) {
		t.Fatal("it begins with all there is")
	}
	sight := m.door.rights(&caller{principal: admin}).Sight(calls.WatchKeys.Action())
	for piece, want := range []int{0, 1, 1} {
		events, more := records.next(f, &room{left: pullEvents, bytes: pullBytes}, sight)
		if len(events) != want || more != (piece < full) {
			t.Errorf("piece %d: %d events, more is %v", piece, len(events), more)
		}
	}

	m.forgetHistory()
	for way, open := range overKeys {
		t.Run(way, func(t *testing.T) {
			r := below("k/", since)
			r.CatchUp = true
			var got []string
			for next, at := open(m, r), uint64(0); at < last; {
				p, err := next()
				if err != nil {
					t.Fatal(err)
				}
				if p.Snapshot || p.More != (p.ProgressIndex == 0) {
					t.Fatalf("got %v", p)
				}
				for _, e := range p.Events {
					got = append(got, e.Entry.Key)
				}
				at = p.ProgressIndex
			}
			if !slices.Equal(got, changed) {
				t.Errorf("shown are %q, want %q", got, changed)
			}
		})
	}
}

// Where more was deleted since than is looked at in one step, a watch that catches up is
// shown all there is; of a few deletions it is found out that they were elsewhere.
func TestG16_CatchingUpAfterManyDeletions(t *testing.T) {
	m := newMember(t)
	since := m.storeMany(append(numbered("gone/", ScanSlice), "k/a", "k/b")...)
	deleteAll := func() {
		t.Helper()
		if _, err := m.keys().Delete(t.Context(), connect.NewRequest(&pb.DeleteRequest{Key: "gone/", Tree: true})); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, snapshot bool, keys ...string) {
		t.Helper()
		m.forgetHistory()
		r := below("k/", since)
		r.CatchUp = true
		got, err := overKeys["stream"](m, r)()
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		for _, e := range got.Events {
			shown = append(shown, e.Entry.Key)
		}
		if got.Snapshot != snapshot || !slices.Equal(shown, keys) {
			t.Errorf("%s: %v", what, got)
		}
	}
	m.store("k/b", "1")
	deleteAll()
	expect("as many as are looked at", false, "k/b")
	m.storeMany("gone/one")
	deleteAll()
	expect("one more", true, "k/a", "k/b")
}

// What may be seen of an index is whole with its end, though all that comes before the end
// may not be seen: nobody holds it back until there is something else to say.
func TestG15_WhatIsSeenOfAnIndexIsWholeAtOnce(t *testing.T) {
	for way, open := range overKeys {
		t.Run(way, func(t *testing.T) {
			m := newMember(t, func(c *Config) { c.ProgressEvery = time.Hour })
			m.let("agent:a", keyRule("a/*", auth.Follow))
			since := m.index()
			next := open(m.as(agentA()), below("", 0))
			if _, err := next(); err != nil {
				t.Fatal(err)
			}
			last := m.storeMany(append([]string{"a/0"}, numbered("z/", pullEvents+44)...)...)
			var seen []string
			for at := since; at < last; {
				got, err := next()
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range got.Events {
					seen = append(seen, e.Entry.GetKey())
				}
				at = max(at, got.ProgressIndex)
			}
			if !slices.Equal(seen, []string{"a/0"}) {
				t.Errorf("seen is %q", seen)
			}
		})
	}
}
