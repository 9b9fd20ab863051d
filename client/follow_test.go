package client

import (
	"bufio"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// answerAtOnce sends answers to several frames as one message.
func (m *scripted) answerAtOnce(answers ...*apiv1.ServerFrame) {
	m.t.Helper()
	payload, err := proto.Marshal(&apiv1.ServerMessage{Frames: answers})
	if err == nil {
		err = ws.WriteFrame(m.conn, ws.NewBinaryFrame(payload))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func startedFrame(id uint64) *apiv1.ServerFrame {
	return &apiv1.ServerFrame{Id: id, Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: &apiv1.Attached{Index: 9}}}}
}

// snapshotPiece is a piece of the snapshot of a watch, with entries of these keys.
func snapshotPiece(id uint64, first, more bool, progress uint64, keys ...string) *apiv1.ServerFrame {
	m := &apiv1.WatchKeysResponse{Snapshot: true, First: first, More: more, ProgressIndex: progress}
	for _, k := range keys {
		m.Events = append(m.Events, &apiv1.KeyEvent{What: "present", Entry: &apiv1.KeyValue{Key: k}})
	}
	return &apiv1.ServerFrame{Id: id, Answer: &apiv1.ServerFrame_WatchKeys{WatchKeys: m}}
}

// A link that is given up while its reader has frames to handle changes nothing any more of
// what the session follows: the next member was told to go on from what the cache had then.
func TestG15_WhatAnAbandonedLinkSaysIsNotTaken(t *testing.T) {
	for name, late := range map[string]func(watch uint64) *apiv1.ServerFrame{
		"the end of a snapshot": func(watch uint64) *apiv1.ServerFrame { return snapshotPiece(watch, false, false, 9, "b") },
		"a refusal": func(watch uint64) *apiv1.ServerFrame {
			return &apiv1.ServerFrame{Id: watch, Error: &apiv1.Error{Kind: incumbent.Denied.String()}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l, m := unbegunSession(t)
				busy, goOn := make(chan bool), make(chan bool)
				s.retry = func(error) { busy <- true; <-goOn } // on the reading goroutine: somebody has the name
				s.present = Presence{Name: "unit/0"}
				keys := NewKeyCache("", WatchKeysOptions{Prefix: true})
				s.follows = append(s.follows, &followed{s: s, of: keys})
				begin := func(l *link) chan error {
					done := make(chan error, 1)
					go func() { done <- s.attach(t.Context(), l, false, time.Second) }()
					return done
				}

				done := begin(l)
				start, watch := m.next(), m.next()
				held := &apiv1.ServerFrame{Id: start.GetStart().Then[0].Id, Error: &apiv1.Error{Kind: incumbent.Held.String()}}
				m.answerAtOnce(startedFrame(start.Id), snapshotPiece(watch.Id, true, true, 0, "a"), held, late(watch.Id))
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				<-busy
				s.drop()
				next, n := s.scriptedMember(t)
				done = begin(next)
				start, watch = n.next(), n.next()
				if watch.GetWatchKeys().GetAfterIndex() != 0 {
					t.Fatalf("it is followed with %v", watch)
				}
				n.answerAtOnce(startedFrame(start.Id), snapshotPiece(watch.Id, true, true, 0, "a"))
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				goOn <- true
				synctest.Wait()
				if keys.Index() != 0 || len(keys.Entries()) != 0 || keys.Err() != nil {
					t.Errorf("of the link before came index %d, %v, %v", keys.Index(), keysOf(keys), keys.Err())
				}
				n.answerAtOnce(snapshotPiece(watch.Id, false, false, 9, "b"))
				synctest.Wait()
				if got := keysOf(keys); keys.Index() != 9 || !slices.Equal(got, []string{"a=", "b="}) {
					t.Errorf("index %d with %v", keys.Index(), got)
				}
			})
		})
	}
}

// Whoever has closed or left a session is told nothing of what it follows any more.
func TestNobodyIsToldBehindTheEnd(t *testing.T) {
	for name, end := range map[string]func(s *Session){
		"detached": (*Session).Detach,
		"closed": func(s *Session) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second) // nobody answers
			defer cancel()
			_ = s.Close(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l, _ := unbegunSession(t)
				l.close()
				stream, r, m := scriptedStream(t)
				s.c.streams = func(ctx context.Context, _ StreamOptions) (*Stream, *bufio.Reader, error) {
					return stream, r, ctx.Err()
				}
				telling, goOn := make(chan bool), make(chan bool)
				keys := NewKeyCache("", WatchKeysOptions{Prefix: true})
				keys.Notify(func() { telling <- true; <-goOn })
				s.follows = append(s.follows, s.followedOf(keys))
				opened := make(chan error, 1)
				go func() { opened <- s.open(t.Context()) }()
				start, watch := m.next(), m.next()
				m.answerAtOnce(startedFrame(start.Id), snapshotPiece(watch.Id, true, false, 9, "a"))
				if err := <-opened; err != nil {
					t.Fatal(err)
				}
				go s.run()
				<-telling
				over := make(chan struct{})
				go func() { end(s); close(over) }()
				time.Sleep(time.Minute)
				select {
				case <-over:
					t.Error("it has ended while the cache tells of a change")
				default:
				}
				close(goOn)
				<-over
			})
		})
	}
}

// What is to be repeated over a link is not asked for any more once another link has it, or
// another session: that would end what these are told.
func TestWhatIsAskedForElsewhereIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		first := s.current()
		keys := NewKeyCache("", WatchKeysOptions{Prefix: true})
		s.Follow(keys)
		m.next()
		f := s.follows[0]
		next, _ := s.scriptedMember(t)
		asked := framesOf(next, s.toAsk(next))
		if late := f.ask(first); len(asked) != 1 || late != nil {
			t.Fatalf("asked for %v, and over the link before %v", asked, late)
		}
		s.finish(errors.New("it is over"))
		if late := f.ask(next); late != nil {
			t.Errorf("asked for %v after the session's end", late)
		}
		next.close()
	})
}

// Who may not say that he is there, or has no room to, says it again once a ttl, for as long
// as the session lives: else he would live on without being listed.
func TestPresenceIsSaidAgainWhateverItWasRefusedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := unbegunSession(t)
		s.present = Presence{Name: "unit/0"}
		told := make(chan error, 10)
		s.retry = func(err error) { told <- err }
		done := make(chan error, 1)
		go func() { done <- s.attach(t.Context(), l, false, time.Second) }()
		start := m.next()
		m.answer(start, startedFrame(start.Id))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		lock := start.GetStart().Then[0]
		for _, kind := range []incumbent.Kind{incumbent.Denied, incumbent.TooLarge, incumbent.Denied} {
			m.answer(lock, &apiv1.ServerFrame{Error: &apiv1.Error{Kind: kind.String()}})
			if err := <-told; incumbent.KindOf(err) != kind {
				t.Errorf("who asks is told %v", err)
			}
			time.Sleep(s.TTL() - time.Millisecond)
			m.nothing()
			if lock = m.next(); lock.GetLock().GetKey() != "presence/unit/0" {
				t.Fatalf("it said %v", lock)
			}
		}
		m.answer(lock, &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Lock{Lock: &apiv1.LockResponse{}}})
		time.Sleep(time.Hour)
		m.nothing()

		again := s.announce(l)
		if err := l.send(again); err != nil {
			t.Fatal(err)
		}
		m.next()
		m.answer(again, &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Denied.String()}})
		<-told
		s.finish(errors.New("it is over"))
		time.Sleep(time.Hour)
		m.nothing()
	})
}

// Who is about to leave does not say anew that he is there.
func TestWhoLeavesDoesNotSayThatHeIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := unbegunSession(t)
		s.present = Presence{Name: "unit/0"}
		begin := func() chan error {
			done := make(chan error, 1)
			go func() { done <- s.attach(t.Context(), l, false, time.Second) }()
			return done
		}
		done := begin()
		start := m.next()
		lock := start.GetStart().Then[0]
		m.answer(start, startedFrame(start.Id))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		m.answer(lock, refused(time.Second))
		synctest.Wait()
		s.shut()
		time.Sleep(time.Minute)
		m.nothing()
		s.drop()
		l, m = s.scriptedMember(t)
		done = begin()
		if start = m.next(); len(start.GetStart().Then) != 0 {
			t.Errorf("it says %v", start)
		}
		m.answer(start, startedFrame(start.Id))
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// What is followed of a session that has begun may be refused for now as well, at once.
func TestWhatIsRefusedAtFirstIsFollowedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		keys := NewKeyCache("", WatchKeysOptions{Prefix: true})
		s.Follow(keys)
		watch := m.next()
		m.answer(watch, &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Unavailable.String()}})
		watch = m.next()
		m.answerAtOnce(snapshotPiece(watch.Id, true, false, 9, "a"))
		synctest.Wait()
		if got := keysOf(keys); !slices.Equal(got, []string{"a="}) || keys.Err() != nil {
			t.Errorf("%v, %v", got, keys.Err())
		}
	})
}

// Names of services and nodes are one in any case of their letters.
func TestAServiceIsFollowedInAnyCase(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	if _, err := c.Catalog().Register(testContext(t), connect.NewRequest(&apiv1.RegisterRequest{
		Node: &apiv1.Node{Name: "Host", Address: "10.0.0.1"}, Service: &apiv1.Service{Id: "w1", Name: "Web"},
		Checks: []*apiv1.Check{{Id: "up", ServiceId: "w1"}},
	})); err != nil {
		t.Fatal(err)
	}
	web := NewServiceCache(WatchServiceOptions{Service: "web"})
	openSession(t, c, SessionConfig{Follow: []Following{web}})
	until(t, web, func() bool { return web.Index() > 0 })
	if list := web.Services(); len(list) != 1 || list[0].Name != "Web" || web.Node("host") == nil || len(web.Checks("host", "W1")) != 1 {
		t.Errorf("services %v, node %v, checks %v", list, web.Node("host"), web.Checks("host", "W1"))
	}
}
