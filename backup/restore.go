package backup

import (
	"io"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
)

// Load brings a state that was read from a backup into a group without a node, as a
// new cluster begins with it. newest is the greatest index that its source is known to
// have had, now the time by the caller's clock. The error is that of the command that
// was refused.
func Load(group *engine.Engine, v *core.View, newest incumbent.Index, now time.Time) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(v.WriteSnapshot(w)) }()
	err := group.Restore(r)
	_ = r.Close() // ends the writer, whatever was read; err says more
	if err != nil {
		return err
	}
	return group.ApplyAll(beginAnew(v, newest, now))
}

// beginAnew are the commands with which a restored state begins: the index rises
// first of all, then the members of its source are gone for ever.
func beginAnew(v *core.View, newest incumbent.Index, now time.Time) [][]byte {
	meta := core.Meta{Origin: core.Origin{At: now.UTC()}}
	cmds := [][]byte{core.RaiseIndexCommand{To: core.RestoreIndex(newest)}.Encode(meta)}
	for _, m := range v.Members() {
		cmds = append(cmds, core.RemoveMemberCommand{ID: m.ID}.Encode(meta))
	}
	return cmds
}
