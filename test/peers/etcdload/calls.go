//go:build linux

package etcdload

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Grant opens a lease, etcd's form of a session.
func Grant(ctx context.Context, c *clientv3.Client, ttlSeconds int64) (clientv3.LeaseID, error) {
	resp, err := c.Grant(ctx, ttlSeconds)
	if err != nil {
		return 0, err
	}
	return resp.ID, nil
}

// GrantAll grants count leases over the clients.
func GrantAll(ctx context.Context, clients []*clientv3.Client, count int, ttlSeconds int64) ([]clientv3.LeaseID, error) {
	leases := make([]clientv3.LeaseID, count)
	err := Each(count, func(i int) (err error) {
		leases[i], err = Grant(ctx, clients[i%len(clients)], ttlSeconds)
		return err
	})
	return leases, err
}

// TryCreate puts the key under the lease if it has no version, and reports
// whether it had none.
func TryCreate(ctx context.Context, c *clientv3.Client, key, value string, lease clientv3.LeaseID) (bool, error) {
	resp, err := c.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(key), "=", 0)).
		Then(clientv3.OpPut(key, value, clientv3.WithLease(lease))).
		Commit()
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

// Create is TryCreate that fails if etcd decides otherwise than expected.
func Create(ctx context.Context, c *clientv3.Client, key, value string, lease clientv3.LeaseID, succeeds bool) error {
	succeeded, err := TryCreate(ctx, c, key, value, lease)
	if err == nil && succeeded != succeeds {
		err = fmt.Errorf("create of %s: succeeded is %v", key, succeeded)
	}
	return err
}

// Put changes a key and returns the revision of the change.
func Put(ctx context.Context, c *clientv3.Client, key, value string) (uint64, error) {
	resp, err := c.Put(ctx, key, value)
	if err != nil {
		return 0, err
	}
	return uint64(resp.Header.Revision), nil
}

// Get reads a key that is there: linearizable, or serializable from the state of
// the member.
func Get(ctx context.Context, c *clientv3.Client, key string, serializable bool) ([]byte, error) {
	var opts []clientv3.OpOption
	if serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	resp, err := c.Get(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	if len(resp.Kvs) != 1 {
		return nil, fmt.Errorf("get of %s: %d keys", key, len(resp.Kvs))
	}
	return resp.Kvs[0].Value, nil
}

// Delete deletes a key that is there.
func Delete(ctx context.Context, c *clientv3.Client, key string) error {
	resp, err := c.Delete(ctx, key)
	if err != nil {
		return err
	}
	if resp.Deleted != 1 {
		return fmt.Errorf("delete of %s: %d keys deleted", key, resp.Deleted)
	}
	return nil
}

// Count counts the keys that begin so: a linearizable read.
func Count(ctx context.Context, to Members, prefix string) (int64, error) {
	var last error
	for i := range to.Endpoints {
		n, err := countAt(ctx, to, i, prefix)
		if err == nil {
			return n, nil
		}
		last = err
	}
	return 0, last
}

func countAt(ctx context.Context, to Members, i int, prefix string) (int64, error) {
	c, err := Open(to, i)
	if err != nil {
		return 0, err
	}
	defer Disconnect([]*clientv3.Client{c}) //nolint:errcheck // it has said what it was asked
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	resp, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return resp.Count, nil
}

// Watch opens a watch of one key and returns once it is there. It lasts as long
// as the context.
func Watch(ctx context.Context, c *clientv3.Client, key string) error {
	events := c.Watch(ctx, key, clientv3.WithCreatedNotify())
	select {
	case created := <-events:
		return created.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Follow watches one key until the context ends. It calls began once the watch is
// there, and seen for each change.
func Follow(ctx context.Context, c *clientv3.Client, key string, began func(), seen func(*clientv3.Event)) error {
	for resp := range c.Watch(ctx, key, clientv3.WithCreatedNotify()) {
		if err := resp.Err(); err != nil {
			return err
		}
		if resp.Created {
			began()
		}
		for _, e := range resp.Events {
			seen(e)
		}
	}
	return ctx.Err()
}

// Stream is one LeaseKeepAlive call of etcd's API. etcd's client paces KeepAlive
// by itself, at a third of the ttl, and opens a stream for every KeepAliveOnce;
// so keepalives are sent here on the stream that KeepAlive would use, over the
// client's own connection. etcd answers a stream in the order of its requests.
type Stream struct{ call pb.Lease_LeaseKeepAliveClient }

// OpenStream opens a stream that lasts as long as the context.
func OpenStream(ctx context.Context, c *clientv3.Client) (Stream, error) {
	call, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
	return Stream{call}, err
}

// Send asks for one keepalive.
func (s Stream) Send(lease clientv3.LeaseID) error {
	return s.call.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease)})
}

// Next waits for the next answer and returns whose it is, and the ttl that lease
// has now in seconds; not above 0: etcd does not know it any more.
func (s Stream) Next() (lease clientv3.LeaseID, ttlSeconds int64, err error) {
	resp, err := s.call.Recv()
	if err != nil {
		return 0, 0, err
	}
	return clientv3.LeaseID(resp.ID), resp.TTL, nil
}

// Receive waits for the answer to the oldest request without one, and is an
// error unless it keeps that lease alive.
func (s Stream) Receive(lease clientv3.LeaseID) error {
	of, ttl, err := s.Next()
	if err != nil {
		return err
	}
	if of != lease || ttl <= 0 {
		return fmt.Errorf("keepalive of lease %x: answer for %x, ttl %d", lease, of, ttl)
	}
	return nil
}
