// Package outside is what tests of the real binary have in common: they run it as
// people do and speak to it with the Go client. Only tests import it.
package outside

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// runTimeout bounds one run of the command line, on a machine that does other
// things too.
const runTimeout = 2 * time.Minute

// lookEvery is how often Eventually looks.
const lookEvery = 20 * time.Millisecond

// Binary is what `make build` makes, for the tests of a folder two below the
// module's.
func Binary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/incumbent")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: 'make build' makes it", err)
	}
	return path
}

// Run runs the command line.
func Run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(t), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Eventually waits for something that another process does.
func Eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	end := time.After(within)
	for {
		if ok() {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("after %v still not: %s", within, what)
		}
	}
}

// Claim claims a lease of the default model without a session. Errors are
// *incumbent.Error.
func Claim(ctx context.Context, c *client.Client, name, holder string, ttl time.Duration) (*apiv1.Lease, error) {
	res, err := c.Leases().Claim(ctx, connect.NewRequest(&apiv1.ClaimRequest{
		Name: &apiv1.LeaseName{Name: name}, Holder: holder, TtlMs: uint32(ttl.Milliseconds()),
	}))
	if err != nil {
		return nil, client.AsError(err)
	}
	return res.Msg.Lease, nil
}

// Get looks a lease of the default model up. Errors are *incumbent.Error.
func Get(ctx context.Context, c *client.Client, name string) (*apiv1.Lease, error) {
	res, err := c.Leases().Get(ctx, connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Name: name}}))
	if err != nil {
		return nil, client.AsError(err)
	}
	return res.Msg.Lease, nil
}
