package bench

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// What the workers of a closed loop send, and what is claimed for them before.

func (l *closedLoop) name(format string, args ...any) *apiv1.LeaseName {
	return &apiv1.LeaseName{Name: l.tag + "/" + fmt.Sprintf(format, args...)}
}

// encode builds a message with one operation for each of the batch.
func (l *closedLoop) encode(w *worker, op func(i int) *apiv1.Operation) ([]byte, error) {
	m := &apiv1.ClientMessage{}
	for i := range l.batch {
		m.Frames = append(m.Frames, &apiv1.ClientFrame{
			Id: l.frameID(w, i), Request: &apiv1.ClientFrame_Operation{Operation: op(i)},
		})
	}
	w.expect(l.batch)
	var err error
	w.buf, err = proto.MarshalOptions{}.MarshalAppend(w.buf[:0], m)
	return w.buf, err
}

func claimOp(name *apiv1.LeaseName, holder string, ttl uint32) *apiv1.Operation {
	return &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{Name: name, Holder: holder, TtlMs: ttl}}}
}

func extendMessage(l *closedLoop, w *worker) ([]byte, error) {
	w.expect(1)
	w.buf = appendExtend(w.buf[:0], l.frameID(w, 0), w.tokens)
	return w.buf, nil
}

func turnMessage(l *closedLoop, w *worker) ([]byte, error) {
	holder := fmt.Sprintf("w%d", w.id)
	return l.encode(w, func(i int) *apiv1.Operation {
		name := l.name("%d/%d", w.id, i)
		if w.step%2 == 0 {
			return claimOp(name, holder, l.ttl)
		}
		return &apiv1.Operation{Op: &apiv1.Operation_Release{Release: &apiv1.ReleaseRequest{Name: name, Holder: holder}}}
	})
}

func createMessage(l *closedLoop, w *worker) ([]byte, error) {
	return l.encode(w, func(i int) *apiv1.Operation { return claimOp(l.name("%d/%d/%d", w.id, w.n, i), "creator", l.ttl) })
}

func sessionMessage(l *closedLoop, w *worker) ([]byte, error) {
	return l.encode(w, func(int) *apiv1.Operation {
		return &apiv1.Operation{Op: &apiv1.Operation_OpenSession{OpenSession: &apiv1.OpenSessionRequest{
			Id: incumbent.NewSessionID().String(), TtlMs: l.ttl,
		}}}
	})
}

func refuseMessage(l *closedLoop, w *worker) ([]byte, error) {
	return l.encode(w, func(i int) *apiv1.Operation { return claimOp(l.name("%d/%d", w.id, i), "another", l.ttl) })
}

// echoBytes is what a bare echo is asked with: an extension's size.
const echoBytes = 60

func echoMessage(_ *closedLoop, w *worker) ([]byte, error) {
	if w.buf == nil {
		w.buf = make([]byte, echoBytes)
	}
	return w.buf, nil
}

// claimForWorkers gives each worker the holdings it will extend.
func claimForWorkers(ctx context.Context, l *closedLoop) error {
	return l.claimFor(ctx, func(i int) string { return fmt.Sprintf("w%d", i) })
}

// claimForAnother has another hold what the workers will claim.
func claimForAnother(ctx context.Context, l *closedLoop) error {
	return l.claimFor(ctx, func(int) string { return "holder" })
}

func (l *closedLoop) claimFor(ctx context.Context, holder func(worker int) string) error {
	return inParallel(ctx, len(l.workers), func(i int) (err error) {
		l.workers[i].tokens, err = claimMany(ctx, l.clients[i%len(l.clients)], l.batch, func(k int) *apiv1.ClaimRequest {
			return claimOp(l.name("%d/%d", i, k), holder(i), l.ttl).GetClaim()
		})
		return err
	})
}
