package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// putRefuser is a member with streams that asks for the first puts once more.
type putRefuser struct {
	beatRefuser
	refuses int
	first   []bool // what each attempt said of its key
	keys    []string
}

func (p *putRefuser) put(f *apiv1.ClientFrame, put *apiv1.PutRequest) *apiv1.ServerFrame {
	p.first = append(p.first, put.Idempotency.GetFirst())
	p.keys = append(p.keys, string(put.Idempotency.GetKey()))
	if len(p.first) <= p.refuses {
		return &apiv1.ServerFrame{Id: f.Id, Error: &apiv1.Error{Kind: incumbent.Unavailable.String(), RetryAfterMs: 1}}
	}
	return &apiv1.ServerFrame{Id: f.Id, Answer: &apiv1.ServerFrame_Put{Put: &apiv1.PutResponse{Index: 7}}}
}

func TestG25_OnlyTheFirstAttemptOverAStreamSaysSo(t *testing.T) {
	p := &putRefuser{refuses: 2}
	p.kept = make(chan struct{})
	p.more = func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
		if put := f.GetPut(); put != nil {
			return p.put(f, put)
		}
		return nil
	}
	web := httptest.NewServer(&p.beatRefuser)
	t.Cleanup(web.Close)
	c := clientOf(t, web.URL)
	c.learned(c.clock(), 1)
	s := openSession(t, c, SessionConfig{TTL: time.Hour})
	index, err := s.KV("").Put(testContext(t), "x", []byte("a"))
	if err != nil || index != 7 {
		t.Fatalf("%v, %v", index, err)
	}
	if want := []bool{true, false, false}; !slices.Equal(p.first, want) {
		t.Errorf("said by the attempts: %v, want %v", p.first, want)
	}
	if p.keys[0] == "" || p.keys[0] != p.keys[1] || p.keys[0] != p.keys[2] {
		t.Errorf("keys of the attempts: %q", p.keys)
	}
}

// What a deadline ends after it was sent may take effect; what was refused has not.
func TestG25_APutOverAStreamWithoutAnswerIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		answer *apiv1.ServerFrame // of each put; nil: none
		want   incumbent.Kind     // Internal: of no kind, for nothing was done
	}{
		"silence":  {nil, incumbent.Unknown},
		"refusals": {&apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Unavailable.String(), RetryAfterMs: 1}}, incumbent.Internal},
		"conflict": {&apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Conflict.String()}}, incumbent.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			puts, third := 0, make(chan struct{})
			m := &beatRefuser{kept: make(chan struct{})}
			m.more = func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
				if f.GetGetKey() != nil {
					return &apiv1.ServerFrame{Id: f.Id, Answer: &apiv1.ServerFrame_GetKey{GetKey: &apiv1.GetKeyResponse{}}}
				}
				if f.GetPut() == nil {
					return nil
				}
				if c.answer == nil {
					cancel()
					return &apiv1.ServerFrame{} // an event that says nothing
				}
				out := &apiv1.ServerFrame{Id: f.Id, Error: c.answer.Error}
				if puts++; puts == 3 { // and then nothing for an hour
					out.Error = &apiv1.Error{Kind: c.answer.Error.Kind, RetryAfterMs: 3_600_000}
					close(third)
				}
				return out
			}
			web := httptest.NewServer(m)
			t.Cleanup(web.Close)
			cl := clientOf(t, web.URL)
			cl.learned(cl.clock(), 1)
			s := openSession(t, cl, SessionConfig{TTL: time.Hour})
			go func() {
				select {
				case <-third:
				case <-ctx.Done():
					return
				}
				_, _ = s.KV("").Get(ctx, "x") // answered behind the third refusal, which so is there
				cancel()
			}()
			_, err := s.KV("").Put(ctx, "x", nil)
			got := incumbent.KindOf(err)
			// Nothing was done: the refusal may be told, or that nobody waits any more,
			// whichever is seen first.
			told := c.want == incumbent.Internal && got == incumbent.Unavailable
			if err == nil || got != c.want && !told {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// Nor is it known what became of a put that was sent when the session ended before it was
// answered; one that was not sent has not taken effect.
func TestAPutIsUnknownIfItsSessionEnds(t *testing.T) {
	for _, sent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, m := scriptedSession(t)
			if !sent {
				s.drop()
			}
			failed := make(chan error, 1)
			go func() {
				_, err := s.KV("").Put(t.Context(), "x", nil)
				failed <- err
			}()
			want := incumbent.Expired
			if sent {
				m.next()
				m.conn.Close()
				want = incumbent.Unknown
			}
			synctest.Wait() // it waits for another link
			s.finish(errTaken())
			if err := <-failed; incumbent.KindOf(err) != want || !Taken(err) {
				t.Errorf("sent %v: %v, want %v", sent, err, want)
			}
		})
	}
}

// overContext is one whose time is over, and of which nobody has been told yet.
type overContext struct{ context.Context }

func (overContext) Err() error { return context.DeadlineExceeded }

// What only reads has no outcome that could be unknown, whatever became of it.
func TestAReadWithoutAnswerIsNotUnknown(t *testing.T) {
	for name, read := range map[string]func(ctx context.Context, s *Session) error{
		"get": func(ctx context.Context, s *Session) error { _, err := s.KV("").Get(ctx, "x"); return err },
		"transaction": func(ctx context.Context, s *Session) error {
			_, err := s.Txn("").Get("x").List("y", 0).Commit(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := scriptedSession(t)
				failed := make(chan error, 1)
				go func() { failed <- read(overContext{t.Context()}, s) }()
				m.next()
				m.conn.Close()
				if err := <-failed; incumbent.KindOf(err) != incumbent.Unavailable {
					t.Errorf("its stream broke: %v", err)
				}
				m = s.scriptedLink(t)
				go func() { failed <- read(t.Context(), s) }()
				m.next()
				m.conn.Close()
				synctest.Wait() // it waits for another link
				s.finish(errTaken())
				if err := <-failed; incumbent.KindOf(err) != incumbent.Expired || !Taken(err) {
					t.Errorf("its session ended: %v", err)
				}
			})
		})
	}
}

// A write over a session's stream makes no call besides, however long nothing was heard: the
// present index is asked for over the stream. What answers and watches show need not be.
func TestAWriteOverAStreamMakesNoCall(t *testing.T) {
	var calls, lookups atomic.Int32
	bases := make(chan uint64, 4)
	m := &beatRefuser{kept: make(chan struct{})}
	m.more = func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
		switch {
		case f.GetGetSession() != nil:
			lookups.Add(1)
			return &apiv1.ServerFrame{Id: f.Id, Answer: &apiv1.ServerFrame_GetSession{GetSession: &apiv1.GetSessionResponse{Index: 20}}}
		case f.GetPut() != nil:
			bases <- f.GetPut().GetIdempotency().GetBaseIndex()
			return &apiv1.ServerFrame{Id: f.Id, Answer: &apiv1.ServerFrame_Put{Put: &apiv1.PutResponse{Index: 30}}}
		case f.GetWatchKeys() != nil:
			return &apiv1.ServerFrame{Id: f.Id, Answer: &apiv1.ServerFrame_WatchKeys{WatchKeys: &apiv1.WatchKeysResponse{ProgressIndex: 40}}}
		}
		return nil
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/stream" {
			calls.Add(1)
		}
		m.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	c, clock := clientOf(t, web.URL), &pausable{}
	c.clock = clock.now
	s := openSession(t, c, SessionConfig{TTL: time.Hour})
	put := func(base uint64, asked int32) {
		t.Helper()
		if _, err := s.KV("").Put(testContext(t), "x", nil); err != nil {
			t.Fatal(err)
		}
		if got := <-bases; got != base || lookups.Load() != asked || calls.Load() != 0 {
			t.Errorf("base %d after %d questions and %d calls, want %d after %d and none", got, lookups.Load(), calls.Load(), base, asked)
		}
	}
	clock.ahead.Store(int64(maxIndexAge + time.Second))
	put(20, 1)
	put(30, 1)
	clock.ahead.Store(int64(2 * (maxIndexAge + time.Second)))
	cache := NewKeyCache("", WatchKeysOptions{Key: "x"})
	changed := cache.Changed()
	s.Follow(cache)
	<-changed
	put(40, 1)
}

// forgetfulKeys answers puts as the log does whose window of results begins at 100.
type forgetfulKeys struct {
	incumbentv1connect.UnimplementedKeyValueServiceHandler
	mu    sync.Mutex // protects bases
	bases []uint64
}

func (f *forgetfulKeys) put(k *apiv1.Idempotency) *apiv1.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bases = append(f.bases, k.GetBaseIndex()); k.GetBaseIndex() >= 100 {
		return nil
	}
	return &apiv1.Error{Kind: incumbent.Unknown.String(), Message: "outside the window", BaseIndex: 120}
}

func (f *forgetfulKeys) Put(_ context.Context, r *connect.Request[apiv1.PutRequest]) (*connect.Response[apiv1.PutResponse], error) {
	refusal := f.put(r.Msg.Idempotency)
	if refusal == nil {
		return connect.NewResponse(&apiv1.PutResponse{Index: 121}), nil
	}
	call := connect.NewError(connect.CodeUnknown, errors.New(refusal.Message))
	detail, err := connect.NewErrorDetail(refusal)
	if err != nil {
		return nil, err
	}
	call.AddDetail(detail)
	return nil, call
}

// A request whose base is older than the window of results, and of which no attempt may have
// been executed, is sent again with the base that the refusal names.
func TestG25_ABaseOutsideTheWindowIsRenewed(t *testing.T) {
	renewed := []uint64{50, 120}
	t.Run("put over a stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, m := scriptedSession(t)
			s.c.saw(50)
			time.Sleep(30 * time.Second)
			var f forgetfulKeys
			m.answerAll(func(frame *apiv1.ClientFrame) *apiv1.ServerFrame {
				if e := f.put(frame.GetPut().GetIdempotency()); e != nil {
					return &apiv1.ServerFrame{Error: e}
				}
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Put{Put: &apiv1.PutResponse{Index: 121}}}
			})
			index, err := s.KV("").Put(t.Context(), "x", nil)
			if index != 121 || err != nil || !slices.Equal(f.bases, renewed) {
				t.Errorf("%d, %v with the bases %v, want %v", index, err, f.bases, renewed)
			}
		})
	})
	t.Run("claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, m := scriptedSession(t)
			s.c.saw(50)
			var f forgetfulKeys
			m.answerAll(func(frame *apiv1.ClientFrame) *apiv1.ServerFrame {
				claim := frame.GetOperation().GetClaim()
				if claim == nil {
					return (&beats{}).answer(frame)
				}
				if e := f.put(claim.GetIdempotency()); e != nil {
					return &apiv1.ServerFrame{Error: e}
				}
				return resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_Claim{Claim: &apiv1.ClaimResponse{
					Index: 121, Lease: &apiv1.Lease{Name: claim.GetName(), Token: 121},
				}}})
			})
			l, err := s.Claim(t.Context(), named("x"), ClaimOptions{})
			if err != nil || l.Token() != 121 || !slices.Equal(f.bases, renewed) {
				t.Errorf("%v with the bases %v, want %v", err, f.bases, renewed)
			}
		})
	})
	t.Run("call", func(t *testing.T) {
		f := &forgetfulKeys{}
		mux := http.NewServeMux()
		mux.Handle(incumbentv1connect.NewKeyValueServiceHandler(f))
		web := httptest.NewServer(mux)
		defer web.Close()
		c := clientOf(t, web.URL)
		c.saw(50)
		index, err := c.KV("").Put(testContext(t), "x", nil)
		if index != 121 || err != nil || !slices.Equal(f.bases, renewed) {
			t.Errorf("%d, %v with the bases %v, want %v", index, err, f.bases, renewed)
		}
		// Whether a caller has sent a key of his own before only he knows.
		key := &apiv1.Idempotency{Key: []byte("k"), BaseIndex: 50}
		_, err = c.Keys().Put(testContext(t), connect.NewRequest(&apiv1.PutRequest{Key: "x", Idempotency: key}))
		if incumbent.KindOf(AsError(err)) != incumbent.Unknown || key.BaseIndex != 50 {
			t.Errorf("%v, base %d", err, key.BaseIndex)
		}
	})
}

// Of a request without an answer, what became of it nobody knows once its base is outside the
// window: it is not repeated. One that was refused at each attempt was not executed.
func TestG25_WhatABaseOutsideTheWindowSaysOfAttempts(t *testing.T) {
	for _, unsure := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, m := scriptedSession(t)
			done := make(chan error, 1)
			go func() {
				_, err := s.KV("").Put(t.Context(), "x", nil)
				done <- err
			}()
			refusal := &apiv1.Error{Kind: incumbent.Unknown.String(), BaseIndex: 120}
			want := incumbent.Unavailable
			if unsure {
				want = incumbent.Unknown
				m.answer(m.next(), &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Unknown.String()}})
				if f := m.next(); f.GetPut().GetIdempotency().GetBaseIndex() != 1 {
					t.Errorf("sent again with another base: %v", f)
				} else {
					m.answer(f, &apiv1.ServerFrame{Error: refusal})
				}
			} else {
				m.answerAll(func(*apiv1.ClientFrame) *apiv1.ServerFrame { return &apiv1.ServerFrame{Error: refusal} })
			}
			if err := <-done; incumbent.KindOf(err) != want {
				t.Errorf("unsure %v: %v, want %v", unsure, err, want)
			}
		})
	}
}
