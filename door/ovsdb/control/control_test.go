package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serving serves some commands at a socket, and returns its path.
func serving(t *testing.T, commands ...Command) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ctl")
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(commands, anybody)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ln) }()
	t.Cleanup(func() {
		ln.Close()
		s.Close()
		if err := <-ended; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return path
}

func dial(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func anybody(string) error { return nil }

var echo = Command{Name: "echo", Usage: "TEXT [TEXT]", Min: 1, Max: 2, Run: func(_ context.Context, args []string) (string, error) {
	if args[0] == "bad" {
		return "", errors.New("it is bad")
	}
	return strings.Join(args, "+") + "\n", nil
}}

func TestRequestsAreAnsweredInOrder(t *testing.T) {
	c := dial(t, serving(t, echo))
	for _, part := range []string{
		`{"id":1,"method":"echo","params":["a","b"]}{"id":"x","meth`, `od":"echo","params":["bad"]} {"id":3,"method":"nothing","params":[]}`,
		`{"id":4,"method":"echo","params":[]}{"id":5,"method":"list-commands"}{"id":6,"method":"list-commands","params":["a"]}`,
	} {
		if _, err := io.WriteString(c, part); err != nil {
			t.Fatal(err)
		}
	}
	in := bufio.NewReader(c)
	for _, want := range []string{
		`{"id":1,"result":"a+b\n","error":null}`,
		`{"id":"x","error":"it is bad\n"}`,
		`{"id":3,"error":"not_found: no command is called \"nothing\": see list-commands\n"}`,
		`{"id":4,"error":"invalid: \"echo\" takes 1 to 2 arguments, not 0\n"}`,
		`{"id":5,"result":"Commands:\n  echo TEXT [TEXT]\n  list-commands\n","error":null}`,
		`{"id":6,"error":"invalid: \"list-commands\" takes no arguments, not 1\n"}`,
	} {
		if got, err := in.ReadString('\n'); err != nil || strings.TrimSpace(got) != want {
			t.Errorf("got %s %v, want %s", got, err, want)
		}
	}
}

func TestWhatIsNoRequestEndsItsConnection(t *testing.T) {
	path := serving(t, echo)
	for _, text := range []string{
		`nonsense`, `[]`, `{"id":1}`, `{"method":"echo","params":["a"]}`, `{"id":1,"method":"echo","params":[1]}`, `{"id":1,"method":"echo","params":"a"}`,
		`{"id":1,"method":"echo","params":["` + strings.Repeat("a", maxRequestBytes) + `"]}`,
	} {
		c := dial(t, path)
		_, _ = io.WriteString(c, text) // it may have been closed within
		if got, _ := io.ReadAll(c); len(got) > 0 {
			t.Errorf("%.40s is answered with %s", text, got)
		}
	}
	c := dial(t, path)
	_, _ = io.WriteString(c, `{"id":1,"method":"echo","params":["a"]}`)
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Errorf("the next connection: %v", err)
	}
}

// What ends the server must not take the answer with it.
func TestTheAnswerComesBeforeWhatFollowsIt(t *testing.T) {
	answered, after := make(chan struct{}), make(chan struct{})
	failing := Command{Name: "failing", Run: func(context.Context, []string) (string, error) { return "", errors.New("no") }, After: func() { t.Error("it failed") }}
	last := Command{Name: "last", Run: func(context.Context, []string) (string, error) { return "", nil }, After: func() { <-answered; close(after) }}
	c := dial(t, serving(t, failing, last))
	_, _ = io.WriteString(c, `{"id":0,"method":"failing"}{"id":1,"method":"last"}`)
	in := bufio.NewReader(c)
	for range 2 {
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	close(answered)
	<-after
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	began := make(chan struct{})
	s := New([]Command{{Name: "long", Run: func(ctx context.Context, _ []string) (string, error) {
		close(began)
		<-ctx.Done()
		return "", ctx.Err()
	}}}, anybody)
	ours, theirs := net.Pipe()
	if !s.add(ours) {
		t.Fatal("it was not taken")
	}
	go func() { _, _ = io.WriteString(theirs, `{"id":0,"method":"long"}`) }()
	<-began
	s.Close()
	if s.add(theirs) {
		t.Error("a connection was taken behind the end")
	}
}

func TestConnectionsAreLimited(t *testing.T) {
	s := New(nil, anybody)
	defer s.Close()
	for i := range maxConnections + 1 {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		if taken := s.add(ours); taken != (i < maxConnections) {
			t.Errorf("connection %d: %v", i, taken)
		}
	}
}

// Only the user of the process gets in, and what is left of an earlier life is no
// obstacle.
func TestG12_TheSocketIsTheUsers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ctl")
	was := syscall.Umask(0)
	defer syscall.Umask(was)
	ln, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the socket's mode is %v, %v", st.Mode(), err)
	}
	if _, err := Listen(path); err == nil {
		t.Error("two listen at one socket")
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	if ln, err = Listen(path); err != nil {
		t.Fatalf("the socket of an earlier life: %v", err)
	}
	ln.Close()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil {
		t.Error("a file was replaced")
	}
}
