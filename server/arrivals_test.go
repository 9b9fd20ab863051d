package server

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/door/native"
	"github.com/incumbent-dev/incumbent/park"
)

// hearingServer is net/http with arrivals below it. Its looks come when a test
// wants them.
type hearingServer struct {
	t        *testing.T
	arrivals *arrivals
	http     *httptest.Server
	looks    chan func()
	new      chan struct{} // net/http has the connection, and does not read yet
	read     chan struct{} // let it
	active   chan struct{} // a request is announced, and its handler does not begin yet
	serve    chan struct{} // let it
	entered  chan struct{} // the handler has begun
	handOn   chan struct{} // let it read the body and hand the extension on
	end      chan struct{} // let it end
	handed   chan struct{} // it has handed on
}

// startHearing serves with or without TLS; http2 says which protocol.
func startHearing(t *testing.T, secure, http2 bool) *hearingServer {
	s := &hearingServer{
		t: t, arrivals: newArrivals(), looks: make(chan func(), 16),
		new: make(chan struct{}, 9), read: make(chan struct{}), active: make(chan struct{}, 9), serve: make(chan struct{}),
		entered: make(chan struct{}, 9), handOn: make(chan struct{}), end: make(chan struct{}), handed: make(chan struct{}, 9),
	}
	s.arrivals.after = func(_ time.Duration, f func()) { s.looks <- f }
	s.http = httptest.NewUnstartedServer(s.arrivals.hear(http.HandlerFunc(s.handle)))
	s.http.Listener = park.Listen(s.arrivals.listen(s.http.Listener), 0)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2 && secure)
	protocols.SetUnencryptedHTTP2(http2 && !secure)
	s.http.Config.Protocols = protocols
	s.http.Config.ConnContext = s.arrivals.connContext
	s.http.Config.ConnState = func(c net.Conn, state http.ConnState) {
		s.arrivals.connState(c, state)
		switch state {
		case http.StateNew:
			s.new <- struct{}{}
			<-s.read
		case http.StateActive:
			if !http2 {
				s.active <- struct{}{}
				<-s.serve
			}
		}
	}
	if secure {
		s.http.EnableHTTP2 = http2
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	client := s.http.Client().Transport.(*http.Transport)
	client.Protocols = protocols
	t.Cleanup(s.http.Close)
	return s
}

// handle does as the door does.
func (s *hearingServer) handle(_ http.ResponseWriter, r *http.Request) {
	s.entered <- struct{}{}
	<-s.handOn
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	native.Heard(r.Context())
	s.handed <- struct{}{}
	<-s.end
}

func (s *hearingServer) post(body io.Reader) {
	r, err := http.NewRequest(http.MethodPost, s.http.URL+incumbentv1connect.LeaseServiceExtendProcedure, body)
	if err != nil {
		s.t.Error(err)
		return
	}
	resp, err := s.http.Client().Do(r)
	if err != nil {
		s.t.Error(err)
		return
	}
	resp.Body.Close()
}

// only returns the only connection.
func (s *hearingServer) only() *arrival {
	s.arrivals.mu.Lock()
	defer s.arrivals.mu.Unlock()
	for a := range s.arrivals.conns {
		return a
	}
	return nil
}

// settled returns when net/http has used all that has arrived, and listens for more.
func (s *hearingServer) settled() {
	s.t.Helper()
	until(s.t, "all that was read is used", func() bool {
		a := s.only()
		a.mu.Lock()
		defer a.mu.Unlock()
		n, _ := a.kernel.Arrived()
		return a.asked == a.read && n == 0
	})
}

// waits looks some times and reports an error if the barrier has passed.
func (s *hearingServer) waits(passed chan struct{}, when string) {
	s.t.Helper()
	for range 4 {
		select {
		case <-passed:
			s.t.Errorf("%s: the barrier has passed", when)
			return
		case look := <-s.looks:
			look()
		}
	}
}

// passes looks on until the barrier has passed, and returns how often.
func (s *hearingServer) passes(passed chan struct{}) (looks int) {
	for ; ; looks++ {
		select {
		case <-passed:
			return looks
		case look := <-s.looks:
			s.settled() // a test's looks are no time apart
			look()
		}
	}
}

func (s *hearingServer) barrier() chan struct{} {
	passed := make(chan struct{})
	s.arrivals.Barrier(func() { close(passed) })
	return passed
}

// What a call extends counts before an expiry wherever it is: in the socket, in a
// request whose handler has not begun, in a handler that has not handed it on.
func TestG07_TheBarrierHearsCalls(t *testing.T) {
	s := startHearing(t, false, false)
	var posts sync.WaitGroup
	posts.Go(func() { s.post(strings.NewReader("an extension")) })
	<-s.new
	until(t, "the request is in the socket", func() bool {
		a := s.only()
		a.mu.Lock()
		defer a.mu.Unlock()
		n, _ := a.kernel.Arrived()
		return n > 0
	})
	inSocket := s.barrier()
	s.waits(inSocket, "in the socket")
	s.read <- struct{}{}
	<-s.active
	s.waits(inSocket, "announced")
	announced := s.barrier()
	s.waits(announced, "announced, a second barrier")
	s.serve <- struct{}{}
	<-s.entered
	s.waits(inSocket, "in the handler")
	s.handOn <- struct{}{}
	<-s.handed
	s.settled()
	for _, passed := range []chan struct{}{inSocket, announced} {
		if n := s.passes(passed); n > 2 {
			t.Errorf("handed on, and %d looks", n)
		}
	}
	if n := s.passes(s.barrier()); n != 0 {
		t.Errorf("a call that waits for its answer is looked at %d times", n)
	}
	close(s.end)
	posts.Wait()
}

func TestG07_TheBarrierHearsCallsOfEveryProtocol(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("TLS %v, HTTP/2 %v", secure, http2), func(t *testing.T) {
				s := startHearing(t, secure, http2)
				close(s.read)
				close(s.serve)
				body, part := io.Pipe()
				var posts sync.WaitGroup
				posts.Go(func() { s.post(body) })
				<-s.entered
				passed := s.barrier()
				s.waits(passed, "in the handler")
				close(s.handOn)
				if _, err := io.WriteString(part, "half an ext"); err != nil {
					t.Fatal(err)
				}
				s.passes(passed) // though the rest never comes
				part.Close()
				<-s.handed
				s.settled()
				// With a stream open HTTP/2 is given the time to start others.
				if n := s.passes(s.barrier()); http2 != (n > 0) || n > startLooks {
					t.Errorf("heard, and %d looks", n)
				}
				close(s.end)
				posts.Wait()
				s.settled()
				until(t, "the connection is idle", func() bool {
					a := s.only()
					a.mu.Lock()
					defer a.mu.Unlock()
					return !a.active
				})
				if n := s.passes(s.barrier()); n != 0 {
					t.Errorf("idle, and %d looks", n)
				}
			})
		}
	}
}

// The barrier of a member asks for calls, too.
func TestG07_TheBarrierOfAMemberAsksForCalls(t *testing.T) {
	s := startHearing(t, false, false)
	close(s.read)
	close(s.serve)
	m := &Server{park: parkSet(t), arrivals: s.arrivals}
	var posts sync.WaitGroup
	posts.Go(func() { s.post(strings.NewReader("an extension")) })
	<-s.entered
	passed := make(chan struct{})
	m.barrier(func() { close(passed) })
	s.waits(passed, "in the handler")
	close(s.handOn)
	<-s.handed
	s.passes(passed)
	close(s.end)
	posts.Wait()
}
