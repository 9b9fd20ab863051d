package outside

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Hoarded is the lease of a [Hoard] with this number: 110 bytes.
func Hoarded(i int) incumbent.Name { return incumbent.Name{Lease: fmt.Sprintf("hoard/%0104d", i)} }

// Hoard opens a session and has it claim n leases, in batches. It returns the
// session's id and the index after the last claim.
func Hoard(ctx context.Context, c *client.Client, n int) (session string, index uint64, err error) {
	session = incumbent.NewSessionID().String()
	if _, err := c.Sessions().OpenSession(ctx, connect.NewRequest(&apiv1.OpenSessionRequest{Id: session, TtlMs: 600_000})); err != nil {
		return "", 0, err
	}
	const batch = 1_000
	holder := strings.Repeat("h", incumbent.MaxHolderBytes) // every change tells of it twice
	for i := 0; i < n; i += batch {
		req := &apiv1.BatchRequest{}
		for k := i; k < min(i+batch, n); k++ {
			req.Operations = append(req.Operations, &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{
				Name: &apiv1.LeaseName{Name: Hoarded(k).Lease}, Holder: holder, Session: session,
			}}})
		}
		res, err := c.Leases().Batch(ctx, connect.NewRequest(req))
		if err != nil {
			return "", 0, err
		}
		for _, r := range res.Msg.Results {
			if r.Error != nil {
				return "", 0, client.DetailError(r.Error)
			}
			index = max(index, r.GetClaim().GetIndex())
		}
	}
	return session, index, nil
}

// hoardWatch is a watch on a stream for the end of a hoard.
func hoardWatch(after uint64) *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Id: 1, Request: &apiv1.ClientFrame_Watch{Watch: &apiv1.StreamWatch{
		Watch: &apiv1.WatchRequest{Name: &apiv1.LeaseName{Name: "hoard/"}, Prefix: true, AfterIndex: after},
	}}}
}

// freed checks that all n changes of a hoard's end come together, each once.
func freed(m *apiv1.WatchResponse, n int) error {
	names := map[string]bool{}
	for _, e := range m.Events {
		names[e.Lease.Name.Name] = true
	}
	if len(names) != n || len(m.Events) != n {
		return fmt.Errorf("%d changes of %d leases came together, there are %d", len(m.Events), len(names), n)
	}
	return nil
}

// overStream follows the end of a hoard on a stream.
func overStream(ctx context.Context, c *client.Client, after uint64, n int) error {
	s, r, err := c.DialStream(ctx, client.StreamOptions{})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Send(hoardWatch(after)); err != nil {
		return err
	}
	var whole client.Whole
	result := errors.New("cut off")
	ended := s.Serve(r, func(f *apiv1.ServerFrame) {
		m := whole.Add(f.GetWatch())
		if f.Error == nil && len(m.GetEvents()) == 0 {
			return
		}
		if result = client.DetailError(f.Error); result == nil {
			result = freed(m, n)
		}
		s.Close()
	})
	if result != nil {
		return fmt.Errorf("%w: %w", result, ended)
	}
	return nil
}

// overCall does so with the client's watch.
func overCall(ctx context.Context, c *client.Client, after uint64, n int) error {
	for m, err := range c.Watch(ctx, client.WatchOptions{Name: incumbent.Name{Lease: "hoard/"}, Prefix: true, After: incumbent.Index(after)}) {
		if err != nil {
			return err
		}
		if len(m.Events) > 0 {
			return freed(m, n)
		}
	}
	return context.Cause(ctx)
}

// EndsForAll closes a session of n leases at the first client's member and checks,
// at every client's, that whoever watches is told all of it: those who watch when
// it happens, over a stream and by a call, and those who come back after it, while
// others do not read at all.
func EndsForAll(t *testing.T, n int, cs ...*client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	session, before, err := Hoard(ctx, cs[0], n)
	if err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	follow := func(how string, watch func(context.Context, *client.Client, uint64, int) error, member int) {
		watching.Go(func() {
			if err := watch(ctx, cs[member], before, n); err != nil {
				t.Errorf("%s at member %d: %v", how, member, err)
			}
		})
	}
	for i, c := range cs {
		follow("a stream", overStream, i)
		follow("a call", overCall, i)
		for range 3 {
			unread, _, err := c.DialStream(ctx, client.StreamOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer unread.Close()
			if err := unread.Send(hoardWatch(before)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := cs[0].Sessions().CloseSession(ctx, connect.NewRequest(&apiv1.CloseSessionRequest{Id: session})); err != nil {
		t.Fatal(err)
	}
	watching.Wait()
	for i := range cs {
		follow("a stream that resumes", overStream, i)
		follow("a call that resumes", overCall, i)
	}
	watching.Wait()
}
