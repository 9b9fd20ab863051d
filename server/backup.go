package server

import (
	"context"
	"encoding/hex"
	"io"
	"time"

	"github.com/incumbent-dev/incumbent/backup"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/overload"
)

// maxBackups is how many backups a member sends at once. Each keeps the state of when
// it began in memory, as far as it has changed since, and takes a quarter of a processor.
const maxBackups = 2

// Backup implements native.Operator.
func (o operator) Backup(ctx context.Context, w io.Writer) error {
	if o.sending.Add(1) > maxBackups {
		o.sending.Add(-1)
		return overload.Errorf("this member sends %d backups already", maxBackups).
			WithHint("wait for them, or ask another member")
	}
	defer o.sending.Add(-1)
	began := time.Now()
	v, err := o.writeBackup(ctx, w)
	if err != nil {
		return err
	}
	o.log.Info("backup sent", "index", v.Index(), "took", time.Since(began))
	return nil
}

// writeBackup writes a backup of everything that was acknowledged before the call.
func (s *Server) writeBackup(ctx context.Context, w io.Writer) (*core.View, error) {
	v, err := s.confirmedView(ctx)
	if err != nil {
		return nil, err
	}
	return v, backup.Write(ctx, w, v, s.backupInfo())
}

// backupInfo is what a backup that is written now says of where it is from.
func (s *Server) backupInfo() backup.Info {
	cluster := s.node.Status().Cluster
	return backup.Info{Cluster: hex.EncodeToString(cluster[:]), Member: s.cfg.Name, Program: s.cfg.Version, At: time.Now()}
}

// confirmedView is the state of this member once it has everything that was
// committed when it was asked for.
func (s *Server) confirmedView(ctx context.Context) (*core.View, error) {
	done := make(chan error, 1)
	s.engine.Confirm(func(err error) { done <- err })
	select {
	case err := <-done:
		return s.engine.View(), err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
