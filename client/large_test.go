package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// A session that follows more than fits into one message begins again all the same, and has
// all of it followed.
func TestWhatIsFollowedNeedsSeveralMessages(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	c := clientOf(t, r.url())
	if _, err := c.Tables("").Define(testContext(t), petsSchema, false); err != nil {
		t.Fatal(err)
	}
	rows, fields := make([]string, 64), make([]string, 64)
	for i := range rows {
		rows[i], fields[i] = petID(i), "Pet/age"
	}
	attached := make(chan bool, 10)
	session := openSession(t, c, SessionConfig{TTL: longTTL, Attached: func(string, bool) { attached <- true }})
	<-attached
	caches, bytes := make([]*TableCache, 100), 0
	for i := range caches {
		caches[i] = NewTableCache("", WatchTablesOptions{Database: "Pets", Fields: fields, Rows: rows})
		bytes += proto.Size(caches[i].request(0))
		session.Follow(caches[i])
	}
	if bytes <= maxMessageBytes {
		t.Fatalf("all of it has %d bytes: the test shows nothing", bytes)
	}
	held := mustClaim(t, session, "db")
	r.cut()
	select {
	case <-attached:
	case <-testContext(t).Done():
		t.Fatal("it does not begin again")
	}
	for _, cache := range caches {
		until(t, cache, func() bool { return cache.Index() > 0 && cache.Err() == nil })
	}
	if !held.Held() {
		t.Error("what it held is not held")
	}
}

// What fits into no message is refused at once, and alone where it is followed.
func TestWhatFitsIntoNoMessage(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	info := make([]byte, 300<<10)
	for _, who := range []Presence{{Name: "unit/0", Info: info}, {Name: "unit/0", Info: info[:maxPresenceBytes]}} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.Open(ctx, SessionConfig{Presence: who}); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("a presence with %d bytes: %v", len(who.Info), err)
		}
	}
	for _, who := range []Presence{{Name: notUTF8}, {Name: "unit/0", Namespace: notUTF8}} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := c.Open(ctx, SessionConfig{Presence: who}); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("a presence that is not UTF-8: %v", err)
		}
	}
	large := NewKeyCache("", WatchKeysOptions{Key: "app", Fields: []string{"value/" + strings.Repeat("a", maxMessageBytes)}})
	small := NewKeyCache("", WatchKeysOptions{Key: "app"})
	who := Presence{Name: "unit/0"}
	who.Info = info[:maxPresenceBytes-len(who.Name)]
	session := openSession(t, c, SessionConfig{TTL: longTTL, Presence: who, Follow: []Following{large, small}})
	until(t, small, func() bool { return small.Index() > 0 })
	awaitPresent(t, c.KV(""), who.Name, Alive)
	if err := large.Err(); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("what is too large to follow: %v", err)
	}
	l := session.current()
	if _, err := l.post(&apiv1.ClientFrame{Request: large.request(0).Request}, beatFrame()); incumbent.KindOf(err) != incumbent.Invalid || l.over() {
		t.Errorf("sent anyway: %v, its stream is over: %v", err, l.over())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 {
		t.Errorf("%d answers are awaited", len(l.pending))
	}
}

// notUTF8 is a text that no message can have.
const notUTF8 = "\xff"

// What cannot be encoded is refused at once and never sent, and takes no link from its session.
func TestWhatCannotBeEncodedIsRefused(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, s *Session) error{
		"put": func(ctx context.Context, s *Session) error { _, err := s.KV("").Put(ctx, notUTF8, nil); return err },
		"get": func(ctx context.Context, s *Session) error { _, err := s.KV("").Get(ctx, notUTF8); return err },
		"lock": func(ctx context.Context, s *Session) error {
			_, err := s.KV("").Lock(ctx, notUTF8, nil, s.ID(), LockOptions{})
			return err
		},
		"transaction": func(ctx context.Context, s *Session) error {
			_, err := s.Txn("").Put("x", nil).Delete(notUTF8).Commit(ctx)
			return err
		},
		"claim": func(ctx context.Context, s *Session) error {
			_, err := s.Claim(ctx, named("db"), ClaimOptions{Holder: notUTF8})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := scriptedSession(t)
				l := s.current()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := ask(ctx, s); incumbent.KindOf(err) != incumbent.Invalid || l.over() {
					t.Errorf("%v, its stream is over: %v", err, l.over())
				}
				m.nothing()
			})
		})
	}
}

// A session begins although one of the things that it follows cannot be asked for.
func TestWhatCannotBeAskedForFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := unbegunSession(t)
		wrong, keys := NewKeyCache("", WatchKeysOptions{Key: notUTF8}), NewKeyCache("", WatchKeysOptions{Prefix: true})
		s.follows = append(s.follows, s.followedOf(wrong), s.followedOf(keys))
		done := make(chan error, 1)
		go func() { done <- s.attach(t.Context(), l, false, time.Second) }()
		start, watch := m.next(), m.next()
		m.answerAtOnce(startedFrame(start.Id), snapshotPiece(watch.Id, true, false, 9, "a"))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := keysOf(keys); len(got) != 1 || incumbent.KindOf(wrong.Err()) != incumbent.Invalid {
			t.Errorf("%v is followed, the other failed with %v", got, wrong.Err())
		}
		if s.Follow(wrong); incumbent.KindOf(wrong.Err()) != incumbent.Invalid || l.over() {
			t.Errorf("followed once more: %v, its stream is over: %v", wrong.Err(), l.over())
		}
		m.nothing()
	})
}

// A beat with more than fits into one message needs several, each of which a member takes.
func TestABeatNeedsSeveralMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		model := strings.Repeat("m", incumbent.MaxNamespaceBytes)
		for token := range maxReleasesPerBeat {
			lease := fmt.Sprintf("%0*d", incumbent.MaxNameBytes, token)
			s.giveBack(incumbent.Name{Namespace: model, Model: model, Lease: lease}, incumbent.Token(token+1))
		}
		var releases atomic.Int64
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			if f.GetBeat() != nil {
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{}}}
			}
			releases.Add(1)
			return resultFrame(&apiv1.OperationResult{})
		})
		if _, ok := s.beat(time.Minute, time.Second); !ok || len(s.unsettled()) > 0 || releases.Load() != maxReleasesPerBeat {
			t.Errorf("kept %v, %d released, %d are not", ok, releases.Load(), len(s.unsettled()))
		}
		if n := m.messages.Load(); n < 3 || m.largest.Load() > maxFrameBytes {
			t.Errorf("%d messages, the largest has %d bytes", n, m.largest.Load())
		}
		s.finish(errors.New("it is over"))
	})
}

// No message has more frames than a member takes, nor more bytes, save for one frame alone;
// their order is that of sending.
func TestMessagesOf(t *testing.T) {
	frame := func(id, size int) *apiv1.ClientFrame {
		f := &apiv1.ClientFrame{Id: uint64(id + 1), Request: &apiv1.ClientFrame_GetKey{GetKey: &apiv1.GetKeyRequest{}}}
		f.GetGetKey().Key = strings.Repeat("k", size)
		return f
	}
	for name, c := range map[string]struct {
		sizes []int
		want  int // messages; 0: it is refused, unless there is nothing to send
	}{
		"none":        {nil, 0},
		"small":       {[]int{1, 1}, 1},
		"many":        {make([]int, maxFrames+1), 2},
		"half":        {[]int{maxFrameBytes / 2, maxFrameBytes / 2, 1}, 2},
		"large alone": {[]int{1, maxFrameBytes, 1}, 3},
		"largest":     {[]int{maxMessageBytes - 64}, 1},
		"too large":   {[]int{1, maxMessageBytes}, 0},
	} {
		var frames []*apiv1.ClientFrame
		for i, size := range c.sizes {
			frames = append(frames, frame(i, size))
		}
		messages, err := messagesOf(frames)
		if len(messages) != c.want || (incumbent.KindOf(err) == incumbent.Invalid) != (c.want == 0 && frames != nil) {
			t.Errorf("%s: %d messages: %v", name, len(messages), err)
		}
		next := uint64(0)
		for _, m := range messages {
			var in apiv1.ClientMessage
			if err := proto.Unmarshal(m, &in); err != nil {
				t.Fatal(err)
			}
			if n := len(in.Frames); n > maxFrames || len(m) > maxFrameBytes && n > 1 || len(m) > maxMessageBytes {
				t.Errorf("%s: a message of %d frames and %d bytes", name, n, len(m))
			}
			for _, f := range in.Frames {
				if next++; f.Id != next {
					t.Errorf("%s: frame %d in place of %d", name, f.Id, next)
				}
			}
		}
	}
}
