// Package control is the socket by which operators' scripts command a server of Open
// vSwitch's databases: ovs-appctl -t PATH COMMAND. Requests are JSON-RPC 1.0 objects,
// one behind the other, whose method is the command and whose parameters are texts; the
// answer is a text, or an error that is one. The package knows the protocol; what the
// commands do is the caller's.
//
// Invariants: only the user of the process can connect, since nobody says who he is
// there; what a command does once it was answered it does after the answer is written.
//
// Concurrency: each connection has a goroutine, and its requests are served in order.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
)

const (
	maxConnections  = 16               // at once; scripts open one for each command
	maxRequestBytes = 64 << 10         // of one request
	patience        = 60 * time.Second // for a request, for what it does, and for its answer to be taken
)

// Command is one that can be given.
type Command struct {
	Name     string
	Usage    string // of its arguments, as list-commands shows them
	Min, Max int    // how many arguments it takes
	// Run does it, until ctx ends, and returns the answer; lines end by "\n".
	Run func(ctx context.Context, args []string) (string, error)
	// After is called once the answer is written, if Run succeeded. nil: nothing is.
	After func()
}

// Server serves the commands.
type Server struct {
	commands []Command // by name
	allowed  func(name string) error
	ctx      context.Context
	stop     context.CancelFunc

	mu     sync.Mutex // guards the rest; never held while anything is waited for
	open   map[net.Conn]struct{}
	closed bool

	running sync.WaitGroup // connections
}

// List is the command that lists all others.
const List = "list-commands"

// New returns a server of some commands, and of [List]. Each is done only if allowed,
// which is asked by its name, returns nil; else its error is the answer.
func New(commands []Command, allowed func(name string) error) *Server {
	s := &Server{open: map[net.Conn]struct{}{}, allowed: allowed}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.commands = append(slices.Clone(commands), Command{Name: List, Run: s.list})
	slices.SortFunc(s.commands, func(a, b Command) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Serve accepts connections until the listener or the server is closed; then the error
// is nil. The listener is the caller's to close.
func (s *Server) Serve(ln net.Listener) error {
	for {
		c, err := ln.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		case !s.add(c):
			c.Close()
		}
	}
}

// add serves a connection, if there is room for it.
func (s *Server) add(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.open) >= maxConnections {
		return false
	}
	s.open[c] = struct{}{}
	s.running.Go(func() { s.serve(c) })
	return true
}

// Close ends all connections and what was begun on them, and waits for that.
func (s *Server) Close() {
	s.stop()
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
}

// request is one as it comes.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Params []string        `json:"params"`
}

type result struct {
	ID     json.RawMessage `json:"id"`
	Result string          `json:"result"`
	Error  *string         `json:"error"` // null
}

type failure struct {
	ID    json.RawMessage `json:"id"`
	Error string          `json:"error"`
}

// serve serves a connection until it ends, or something comes on it that is no request.
func (s *Server) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
	}()
	from := &io.LimitedReader{R: c}
	in, out := json.NewDecoder(from), json.NewEncoder(c)
	for {
		from.N = maxRequestBytes // what the decoder has read ahead of is within the last one's
		_ = c.SetReadDeadline(time.Now().Add(patience))
		var r request
		if err := in.Decode(&r); err != nil || r.Method == nil || len(r.ID) == 0 {
			return
		}
		answer, after := s.answer(&r)
		_ = c.SetWriteDeadline(time.Now().Add(patience))
		if err := out.Encode(answer); err != nil {
			return
		}
		if after != nil {
			after()
		}
	}
}

// answer does what a request wants, and returns its answer and what is to be done behind
// that.
func (s *Server) answer(r *request) (answer any, after func()) {
	text, after, err := s.run(*r.Method, r.Params)
	if err != nil {
		return failure{r.ID, err.Error() + "\n"}, nil
	}
	return result{ID: r.ID, Result: text}, after
}

func (s *Server) run(name string, args []string) (text string, after func(), err error) {
	i, found := slices.BinarySearchFunc(s.commands, name, func(c Command, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		return "", nil, incumbent.Errorf(incumbent.NotFound, "no command is called %q: see list-commands", name)
	}
	if err := s.allowed(name); err != nil {
		return "", nil, err
	}
	c := &s.commands[i]
	if len(args) < c.Min || len(args) > c.Max {
		return "", nil, incumbent.Errorf(incumbent.Invalid, "%q takes %s, not %d", name, c.counts(), len(args))
	}
	ctx, done := context.WithTimeout(s.ctx, patience)
	defer done()
	text, err = c.Run(ctx, args)
	return text, c.After, err
}

// counts says how many arguments the command takes.
func (c *Command) counts() string {
	switch {
	case c.Max == 0:
		return "no arguments"
	case c.Min == c.Max:
		return strconv.Itoa(c.Min) + " arguments"
	}
	return strconv.Itoa(c.Min) + " to " + strconv.Itoa(c.Max) + " arguments"
}

// list is list-commands.
func (s *Server) list(context.Context, []string) (string, error) {
	var b strings.Builder
	b.WriteString("Commands:\n")
	for _, c := range s.commands {
		b.WriteString(strings.TrimRight("  "+c.Name+" "+c.Usage, " ") + "\n")
	}
	return b.String(), nil
}
