package node

import (
	"context"
	"errors"

	"github.com/incumbent-dev/incumbent/vfs"
)

// fileWorker does the work on snapshot files that no other goroutine owns: it
// reads pieces to send, writes pieces that came, and removes what nobody needs.
// One goroutine for all of it: the pieces of a file stay in order, nothing is
// left behind by a peer that dies, and the disk is not asked by many at once.
type fileWorker struct {
	queue  *queue[func() error]
	inline bool  // a Manual's: tasks run where they are handed in
	failed error // inline only: what would have stopped a running node

	open map[vfs.File]struct{} // owned by the worker: closed with the node
}

func newFileWorker() *fileWorker {
	return &fileWorker{queue: newQueue[func() error](), open: map[vfs.File]struct{}{}}
}

func (w *fileWorker) run(ctx context.Context) error {
	var tasks []func() error
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.queue.wake:
		}
		tasks = w.queue.take(tasks)
		for _, f := range tasks {
			if ctx.Err() != nil {
				return nil
			}
			if err := f(); err != nil {
				return err
			}
		}
	}
}

// opened remembers a file until closed is called.
func (w *fileWorker) opened(f vfs.File) { w.open[f] = struct{}{} }

// closed closes a file that was opened, if it is not closed yet.
func (w *fileWorker) closed(f vfs.File) error {
	if _, ok := w.open[f]; !ok {
		return nil
	}
	delete(w.open, f)
	return f.Close()
}

// finish closes what is open. The goroutine has ended.
func (w *fileWorker) finish() error {
	var errs []error
	for f := range w.open {
		errs = append(errs, w.closed(f))
	}
	return errors.Join(errs...)
}

// onFiles hands a task to the file worker. What it returns is fatal.
func (n *Node) onFiles(task func() error) {
	if !n.files.inline {
		n.files.queue.push(task)
		return
	}
	if n.files.failed != nil {
		return
	}
	if err := task(); err != nil {
		n.files.failed = err
		signal(n.appender.queue.wake) // Append returns it
	}
}

// sweep removes the snapshot files that nobody needs.
func (n *Node) sweep() {
	n.onFiles(n.sweepNow)
}

func (n *Node) sweepNow() error {
	if err := n.snapshots.sweep(); err != nil {
		return fatal("remove old snapshots", err)
	}
	return nil
}
