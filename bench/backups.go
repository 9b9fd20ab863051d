package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Stock is what the servers store before the load begins, besides what that needs.
type Stock struct {
	Leases     int `yaml:"leases"`
	Keys       int `yaml:"keys"`
	ValueBytes int `yaml:"value_bytes"` // of each key
}

// stockers is how many callers fill the servers.
const stockers = 8

// stockTTL is that of the leases: longer than any run.
const stockTTL = 12 * time.Hour

func (s *Stock) validate() error {
	if s == nil {
		return nil
	}
	if s.Leases < 0 || s.Leases > maxAgents || s.Keys < 0 || s.Keys > maxAgents || s.Keys > 0 && (s.ValueBytes < numberBytes || s.ValueBytes > maxValueBytes) {
		return fmt.Errorf("closed.stock: leases and keys must be 0 to %d, value_bytes %d to %d", maxAgents, numberBytes, maxValueBytes)
	}
	return nil
}

// fill stores it, spread over the members, under names that begin with the tag.
func (r *run) fill(ctx context.Context, s *Stock, tag string) error {
	r.setPhase("filling")
	batches := (s.Leases + claimBatch - 1) / claimBatch
	err := inParallelOf(ctx, stockers, batches, func(i int) error {
		n := min(claimBatch, s.Leases-i*claimBatch)
		_, err := claimMany(ctx, r.clients[i%len(r.clients)], n, func(k int) *apiv1.ClaimRequest {
			name := &apiv1.LeaseName{Name: fmt.Sprintf("%s-%d", tag, i*claimBatch+k)}
			return &apiv1.ClaimRequest{Name: name, Holder: "stock", TtlMs: uint32(stockTTL.Milliseconds())}
		})
		return err
	})
	if err != nil || s.Keys == 0 {
		return err
	}
	workers := make([]*keyWorker, stockers)
	defer closeAll(workers)
	return inParallelOf(ctx, stockers, stockers, func(i int) (err error) {
		workers[i], err = r.dialKeys(ctx, i, "")
		for k := i; err == nil && k < s.Keys; k += stockers {
			err = r.storeKey(ctx, workers[i], fmt.Sprintf("%s/%d", tag, k), s.ValueBytes)
		}
		return err
	})
}

// storeKey puts a key, and gives a server that is overloaded by that the time it asks for.
func (r *run) storeKey(ctx context.Context, w *keyWorker, key string, bytes int) error {
	if len(w.value) != bytes {
		w.value = make([]byte, bytes)
	}
	for {
		w.key = key
		err := w.put()
		wait, overloaded := overloadOf(err)
		if !overloaded {
			return err
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// backupBeside takes a backup every now and then, from a follower if there is one, until
// ctx ends. One at least has to come to its end.
func (r *run) backupBeside(ctx context.Context, b *Beside) error {
	from, err := r.follower(ctx)
	if err != nil {
		return err
	}
	record, done := r.rec.op("backup"), 0
	defer func() {
		if done == 0 {
			r.check.Violate("no backup has come to its end: measure for longer")
		}
	}()
	next := time.NewTicker(time.Duration(b.Every))
	defer next.Stop()
	for {
		err := r.timed(ctx, record, func() error { return r.takeBackup(ctx, from, io.Discard) })
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			done++
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
}

// follower is a client of a member that does not lead; of the only one, if there is but
// one.
func (r *run) follower(ctx context.Context) (*client.Client, error) {
	res, err := r.clients[0].Cluster().Members(ctx, connect.NewRequest(&apiv1.MembersRequest{}))
	if err != nil {
		return nil, client.AsError(err)
	}
	leads := ""
	for _, m := range res.Msg.Members {
		if m.Name == res.Msg.Leader {
			leads = m.Address
		}
	}
	for i, url := range r.urls {
		if leads == "" || !strings.HasSuffix(strings.TrimSuffix(url, "/"), leads) {
			return r.clients[i], nil
		}
	}
	return r.clients[0], nil
}

// takeBackup reads a backup to its end.
func (r *run) takeBackup(ctx context.Context, from *client.Client, to io.Writer) error {
	stream, err := from.Cluster().Backup(ctx, connect.NewRequest(&apiv1.BackupRequest{}))
	if err != nil {
		return client.AsError(err)
	}
	defer stream.Close()
	bytes := 0
	for stream.Receive() {
		n, err := to.Write(stream.Msg().Data)
		if err != nil {
			return err
		}
		bytes += n
	}
	if err := stream.Err(); err != nil {
		return client.AsError(err)
	}
	if bytes == 0 {
		return incumbent.Errorf(incumbent.Corrupt, "a backup of no bytes")
	}
	r.fact("backup_bytes", float64(bytes))
	return nil
}
