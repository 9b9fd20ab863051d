package node

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent/vfs"
)

// lines is a log that tests may read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// A disk that fails where a spare log file is made stops nobody: that file holds
// nothing yet. It is said and tried again, and not each second.
func TestG31_AFailedSpareStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newStand(), &lines{}
		var broken atomic.Bool
		r := s.start(t, func(c *Config) {
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
			c.FS = vfs.Inject(s.fs, func(call vfs.Call) vfs.Fault {
				if broken.Load() && call.Op == vfs.OpCreate && strings.Contains(call.Name, "/log/spare-") {
					return vfs.Fault{Err: syscall.EIO}
				}
				return vfs.Fault{}
			})
		})
		time.Sleep(diskPollEvery + diskPollEvery/2)
		broken.Store(true)
		for range 3 { // into the next segment, which was a spare
			r.mustPropose(strings.Repeat("x", 900<<10))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := log.count("no spare made"); n != 1 {
			t.Errorf("said %d times in ten seconds", n)
		}
		if st := r.Status(); st.GrowthRefused || st.Paused != "" {
			t.Errorf("status: %+v", st)
		}
		r.mustPropose("it goes on")
		broken.Store(false)
		time.Sleep(prepareRetryAfter + diskPollEvery)
		synctest.Wait()
		if n := log.count("no spare made"); n != 1 {
			t.Errorf("said %d times, though the disk is well again", n)
		}
		r.mustPropose("and on")
		if err := r.stop(); err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
}
