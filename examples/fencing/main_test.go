package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/server"
)

// Of two that believe they hold the lease only the one that does writes.
func TestG24_OnlyOneWrites(t *testing.T) {
	s, err := server.Open(server.Config{
		DataDir: t.TempDir(), Name: "n1", Listen: "127.0.0.1:0",
		SegmentBytes: node.MinSegmentBytes, DiskReserve: 1 << 20, ReturnTime: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := s.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), s.URL(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `one holds the lease, and stands still
two holds the lease
two writes: true
one writes: false
what is written is of two
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
