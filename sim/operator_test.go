package sim

import (
	"testing"
	"testing/cryptotest"
	"time"
)

// What a copy of a disk shows when it is put back is no more than is said of it: else a
// member would count as put back to an earlier state that has forgotten nothing, and that
// nobody can notice (seed 800224: the copy was made while an entry was written).
func TestACopyOfADiskEndsWithWhatIsBeingWritten(t *testing.T) {
	cfg := config(2)
	cfg.Faults, cfg.Hostile = 0, false
	cryptotest.SetGlobalRandom(t, cfg.Seed)
	w := newWorld(cfg)
	w.loop(3 * time.Second) // somebody leads, and clients write
	for range 1000 {
		if !w.loop(w.now + time.Millisecond) {
			t.Fatal(w.res.Violations)
		}
		m := w.members[0]
		knows := m.proc.node.Status().Durable
		m.copyDisk()
		if m.backupEnds < knows {
			t.Fatalf("a copy ends at %d, the member has synced %d", m.backupEnds, knows)
		}
		if m.backupEnds > knows {
			return
		}
	}
	t.Error("no copy was made while something was written")
}
