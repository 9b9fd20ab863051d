package client

import (
	"bufio"
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// pipedMember is a new stream to a member that answers so.
func pipedMember(t *testing.T, answer func(*apiv1.ClientFrame) *apiv1.ServerFrame) (*Stream, *bufio.Reader, error) {
	near, far := net.Pipe()
	m := &scripted{t: t, conn: far, frames: make(chan *apiv1.ClientFrame, 1000)}
	go m.read()
	m.answerAll(answer)
	return &Stream{conn: near, member: "member"}, bufio.NewReader(near), nil
}

// Who loses its member is told why it finds none. It asks for as long as it takes where that
// may be over by itself, and else seldom, until the session cannot be alive any more.
func TestASessionWhoseStreamBreaks(t *testing.T) {
	const ttl = time.Minute
	for name, c := range map[string]struct {
		kind    incumbent.Kind
		until   time.Duration // from then on it is let in; 0: never
		ends    bool
		seldom  bool
		watched time.Duration
	}{
		"its credential was revoked":       {kind: incumbent.Denied, ends: true, seldom: true, watched: 2 * ttl},
		"it was revoked by mistake":        {kind: incumbent.Denied, until: ttl / 2, seldom: true, watched: ttl},
		"no member is there":               {kind: incumbent.Unavailable, watched: 3 * ttl},
		"no member is there for some time": {kind: incumbent.Unavailable, until: 2 * ttl, watched: 3 * ttl},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, first, m := unbegunSession(t)
				answer := func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
					if f.GetStart() != nil {
						return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: &apiv1.Attached{HeldMs: uint32(ttl.Milliseconds()), Index: 9}}}}
					}
					return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{HeldMs: uint32(ttl.Milliseconds())}}}
				}
				m.answerAll(answer)
				if err := s.attach(t.Context(), first, true, time.Second); err != nil {
					t.Fatal(err)
				}
				var dials []time.Time
				var told []error
				s.retry = func(err error) { told = append(told, err) }
				broke := time.Now()
				s.c.streams = func(context.Context, StreamOptions) (*Stream, *bufio.Reader, error) {
					dials = append(dials, time.Now())
					if c.until == 0 || time.Since(broke) < c.until {
						return nil, nil, incumbent.Errorf(c.kind, "not you")
					}
					return pipedMember(t, answer)
				}
				first.close()
				m.conn.Close()
				go s.run()
				time.Sleep(c.watched)
				synctest.Wait()

				let := c.until > 0
				if (s.current() != nil) != let || (s.ctx.Err() != nil) != c.ends {
					t.Errorf("let in: %v; it ended with %v", s.current() != nil, context.Cause(s.ctx))
				}
				if untold := len(dials) - len(told); untold != 1 && (c.ends || let) || untold != 0 && !c.ends && !let || len(told) == 0 || incumbent.KindOf(told[0]) != c.kind {
					t.Errorf("of %d attempts %d were told: %v", len(dials), len(told), told[:min(3, len(told))])
				}
				if c.seldom && len(dials) > 40 { // each is a third of the time since the first apart, at least
					t.Errorf("%d attempts", len(dials))
				}
				for i, d := range dials[1:] {
					if pause := d.Sub(dials[i]); pause > ttl/beatsPerTTL {
						t.Errorf("attempt %d after %v", i+1, pause)
					}
				}
				if c.ends {
					cause := context.Cause(s.ctx)
					if after := slices.MaxFunc(dials, time.Time.Compare).Sub(broke); after < ttl || after > ttl+ttl/beatsPerTTL {
						t.Errorf("it ended after %v", after)
					}
					if incumbent.KindOf(cause) != incumbent.Expired || !errors.Is(cause, &incumbent.Error{Kind: c.kind}) || Taken(cause) {
						t.Errorf("it ended with %v", cause)
					}
					if err := s.Close(t.Context()); err != nil {
						t.Errorf("closing what is over: %v", err)
					}
				}
			})
		})
	}
}
