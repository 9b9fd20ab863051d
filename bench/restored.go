package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"os"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Pages in which what is stored is read back.
const (
	keysAPage   = 200
	leasesAPage = 10_000
)

// restoreAndCompare backs the servers up, makes a new cluster of the backup, and
// compares what read finds in both; whole says whether it is all that was stored.
func (r *run) restoreAndCompare(ctx context.Context, read func(context.Context, *client.Client) (stored, error), whole func(stored) bool) error {
	r.setPhase("backing up")
	from, err := r.follower(ctx)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "incumbent-bench-*.backup")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // in a folder for temporary files
	err = r.takeBackup(ctx, from, file)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	r.setPhase("reading what is stored")
	want, err := read(ctx, r.clients[0])
	if err != nil {
		return err
	}
	if !whole(want) {
		r.check.Violate("of what was stored before only %v can be read", want)
	}
	r.setPhase("restoring")
	began := r.now()
	restored, err := r.opts.Restore(ctx, file.Name())
	if err != nil {
		return err
	}
	defer restored.Stop()
	cfg := restored.Client()
	cfg.Servers = []string{restored.Servers()[0].URL}
	c, err := client.New(cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Leases().List(ctx, connect.NewRequest(&apiv1.ListRequest{Limit: 1})); err != nil {
		return client.AsError(err)
	}
	r.fact("restore_seconds", (r.now() - began).Seconds())
	r.setPhase("reading what was restored")
	got, err := read(ctx, c)
	if err == nil && got != want {
		r.check.Violate("the restored cluster stores something else: %v, and the one that was backed up %v", got, want)
	}
	return err
}

// stored is what a cluster stores of what one run put there.
type stored struct {
	keys, leases, rows int
	sum                [sha256.Size]byte
}

// String names the beginning of the hash.
func (s stored) String() string {
	return fmt.Sprintf("%d keys, %d leases, %d rows, sha256 %x…", s.keys, s.leases, s.rows, s.sum[:8])
}

// digest reads it all.
func digest(ctx context.Context, c *client.Client, tag string) (s stored, err error) {
	sum := sha256.New()
	if s.keys, err = digestKeys(ctx, c, tag+"/", sum); err != nil {
		return s, client.AsError(err)
	}
	if s.leases, err = digestLeases(ctx, c, tag+"-", sum); err != nil {
		return s, client.AsError(err)
	}
	sum.Sum(s.sum[:0])
	return s, nil
}

func digestKeys(ctx context.Context, c *client.Client, prefix string, sum hash.Hash) (n int, err error) {
	for after := ""; ; {
		res, err := c.Keys().List(ctx, connect.NewRequest(&apiv1.ListKeysRequest{Prefix: prefix, After: after, Limit: keysAPage}))
		if err != nil {
			return n, err
		}
		for _, e := range res.Msg.Entries {
			_, _ = fmt.Fprintf(sum, "%q %d %d %d %d\n", e.Key, e.Flags, e.CreatedIndex, e.ModifiedIndex, len(e.Value)) // a hash takes everything
			sum.Write(e.Value)
			n++
		}
		if after = res.Msg.Next; after == "" {
			return n, nil
		}
	}
}

func digestLeases(ctx context.Context, c *client.Client, prefix string, sum hash.Hash) (n int, err error) {
	for page := (&apiv1.ListRequest{Prefix: prefix, Limit: leasesAPage}); ; {
		res, err := c.Leases().List(ctx, connect.NewRequest(page))
		if err != nil {
			return n, err
		}
		for _, l := range res.Msg.Leases {
			_, _ = fmt.Fprintf(sum, "%q %q %d %d\n", l.Name.GetName(), l.Holder, l.Token, l.TtlMs)
			n++
			page.After = l.Name
		}
		if !res.Msg.More {
			return n, nil
		}
	}
}
