package server

import (
	"slices"
	"sync"
	"testing"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core/credential"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// endsACredential reports whether a command ends a credential of the cluster.
func endsACredential(cmd []byte) bool {
	r := wire.Read(cmd)
	for f, more := r.Next(); more; f, more = r.Next() {
		if f.Num == credential.Number {
			inner := wire.Read(f.B)
			verb, _ := inner.Next()
			var is uint64
			return verb.Uint(&is) && is == uint64(credential.End)
		}
	}
	return false
}

// A leader writes down that credentials have ended, commit after commit. Whoever is
// taken back meanwhile is cut off there as soon as elsewhere.
func TestG12_ALeaderThatWritesDownEndsCutsOffMeanwhile(t *testing.T) {
	path, tokens := credentialFile(t, map[string]auth.Kind{"ops": auth.Operator, "goes": auth.Agent})
	cfg := testConfig(t)
	cfg.CredentialFile = path
	s := open(t, cfg)
	writes, goesOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f := func(cmds [][]byte) {
		if slices.ContainsFunc(cmds, endsACredential) {
			once.Do(func() { close(writes) })
			<-goesOn
		}
	}
	s.tamper.Store(&f)
	t.Cleanup(func() { close(goesOn) })

	ctx := testContext(t)
	goes := dialer(t, client.Config{Servers: []string{s.URL()}, Credential: tokens["goes"]})
	_, in, err := goes.DialStream(ctx, client.StreamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for err := error(nil); err == nil; {
			_, err = in.ReadByte()
		}
	}()
	sum, err := auth.SumOf(auth.NewToken())
	if err != nil {
		t.Fatal(err)
	}
	ops := dialer(t, client.Config{Servers: []string{s.URL()}, Credential: tokens["ops"]})
	_, err = ops.CreateCredential(ctx, &apiv1.CreateCredentialRequest{
		Principal: "agent:ended", Secret: &apiv1.CreateCredentialRequest_TokenSha256{TokenSha256: sum[:]}, EndsUnixMs: time.Now().Add(-time.Hour).UnixMilli(),
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-writes:
	case <-ctx.Done():
		t.Fatal("the leader does not write down that the credential has ended")
	}
	s.guard.SetCredentials(nil) // as when the state says that one was taken back
	s.tend()
	select {
	case <-over:
	case <-time.After(tendTimeout / 2):
		t.Error("who was taken back stays while the leader waits for a commit")
	}
}
