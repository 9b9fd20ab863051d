package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/backup"
)

// blocking is a reader of backups that stands still.
type blocking struct{ begun, free chan struct{} }

func (b *blocking) Write(p []byte) (int, error) {
	select {
	case b.begun <- struct{}{}:
	default:
	}
	<-b.free
	return len(p), nil
}

// Backups that nobody reads keep a place each, and no more than there are.
func TestBackupsAreFew(t *testing.T) {
	s := open(t, Config{DataDir: t.TempDir()})
	until(t, "the member is recorded, and nothing else happens", func() bool { return len(s.engine.View().Members()) > 0 })
	slow := &blocking{make(chan struct{}), make(chan struct{})}
	ended := make(chan error)
	for range maxBackups {
		go func() { ended <- s.operator().Backup(context.Background(), slow) }()
		<-slow.begun
	}
	if err := s.operator().Backup(t.Context(), io.Discard); incumbent.KindOf(err) != incumbent.Overloaded {
		t.Errorf("one more: %v", err)
	}
	close(slow.free)
	for range maxBackups {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	var b bytes.Buffer
	if err := s.operator().Backup(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	info, v, err := backup.Verify(&b, "f")
	if err != nil || v.Index() != s.engine.View().Index() || info.Member != s.cfg.Name {
		t.Errorf("%+v, %v", info, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.operator().Backup(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
}
