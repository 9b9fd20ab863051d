package gate

import (
	"errors"
	"io"
	"slices"
	"syscall"
)

// watcher waits for the first bytes of silent connections, and for what a proxy has
// to say in front of them. Its methods are called under Gate.mu.
type watcher interface {
	watch(c *Conn)
	forget(c *Conn) // whom it was to watch
	close()
}

// each waits with a goroutine for each connection: for those without a descriptor,
// and where there is no epoll.
type each struct{ g *Gate }

func (w each) watch(c *Conn) { go w.wait(c) }

// forget leaves the goroutine to the end of the connection, or to its first bytes.
func (each) forget(*Conn) {}

func (each) close() {}

// wait reads until the first byte that is not a proxy's.
func (w each) wait(c *Conn) {
	heard, err := c.hear(func(p []byte) (int, error) { return io.ReadFull(c.Conn, p) })
	w.g.mu.Lock()
	defer w.g.unlock()
	if c.stage != silent {
		return
	}
	var bad badProxy
	switch {
	case errors.As(err, &bad):
		w.g.drop(c, BadProxy)
	case err != nil:
		w.g.leave(c)
		w.g.doomed = append(w.g.doomed, c)
	default:
		w.g.named(c)
		c.spare = heard
		c.begins(heard)
		w.g.spoke(c)
	}
}

// handshakeRecord begins a handshake of TLS (RFC 8446, section 5.1).
const handshakeRecord = 22

// begins takes note of the first byte.
func (c *Conn) begins(heard []byte) { c.secure = len(heard) > 0 && heard[0] == handshakeRecord }

// hear reads with read, which reads all that is asked for, the header of a proxy and
// the first byte behind it.
func (c *Conn) hear(read func([]byte) (int, error)) (heard []byte, err error) {
	for c.proxied && !c.told {
		need, err := c.proxy()
		if err != nil {
			return nil, err
		}
		if need == 0 {
			break
		}
		more := make([]byte, need)
		n, err := read(more)
		c.header = append(c.header, more[:n]...)
		if err != nil {
			return nil, err
		}
	}
	one := make([]byte, 1)
	_, err = read(one)
	return one, err
}

// badProxy is a connection of a proxy that does not begin as it should.
type badProxy struct{ error }

// proxy reads what has come of a proxy's header and returns how many bytes it still
// takes; none: it was read.
func (c *Conn) proxy() (need int, err error) {
	from, need, err := proxyHeader(c.header)
	switch {
	case err != nil:
		return 0, badProxy{err}
	case need == 0:
		c.told, c.header, c.behind = true, nil, from
	}
	return need, nil
}

func outOfDescriptors(err error) bool {
	return isOneOf(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM)
}

// ofOneConnection reports an error of accept(2) that is about the connection which was to be
// taken, not about the listener: it says which ones are to be taken for a reason to try again.
// What is aborted the net package takes for that itself.
func ofOneConnection(err error) bool {
	return isOneOf(err, syscall.EPROTO, syscall.ENOPROTOOPT, syscall.EPERM, syscall.EOPNOTSUPP,
		syscall.ENETDOWN, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.EHOSTUNREACH, syscall.ETIMEDOUT)
}

func isOneOf(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}
