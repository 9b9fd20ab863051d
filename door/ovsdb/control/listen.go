package control

import (
	"net"
	"os"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// dialPatience is how long is waited to find out whether somebody listens at a socket.
const dialPatience = time.Second

// Listen listens at a path, for the user of the process only. A socket that an earlier
// life has left behind is replaced; one that somebody listens at is Unavailable, and so
// is a path that is something else. It is called while the process does nothing else:
// the mode of files it makes is, for that moment, another one.
func Listen(path string) (net.Listener, error) {
	if c, err := net.DialTimeout("unix", path, dialPatience); err == nil {
		c.Close()
		return nil, incumbent.Errorf(incumbent.Unavailable, "somebody listens at %s", path)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path) // else listening says why it cannot
	}
	defer private()() // from the first moment on: who has connected stays, whatever the mode is later
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%w", err)
	}
	return ln, nil
}
