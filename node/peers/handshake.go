package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/node"
)

// track makes a socket known to barriers and to Close; one that was accepted is a
// stranger's until it has proven otherwise. It returns nil, with the connection
// closed, if this member is closing or muted.
func (s *Set) track(nc net.Conn, accepted bool) *socket {
	sock := newSocket(nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil || s.muted.Load() {
		hangUp(nc)
		return nil
	}
	if accepted {
		s.strangers.enter(sock)
	}
	s.sockets[sock] = nil
	return sock
}

// untrack lets go of a socket that will not deliver any more.
func (s *Set) untrack(sock *socket) {
	s.mu.Lock()
	delete(s.sockets, sock)
	s.strangers.leave(sock)
	s.mu.Unlock()
	sock.finish()
}

// promote makes a socket that of a connection, unless it was closed meanwhile.
func (s *Set) promote(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.sockets[c.socket]; !ok || s.ctx.Err() != nil {
		return false
	}
	s.sockets[c.socket] = c
	return true
}

// accept takes connections until the listener is closed.
func (s *Set) accept() {
	pause := backoffFirst
	for {
		nc, err := s.cfg.Listener.Accept()
		switch {
		case err == nil:
			pause = backoffFirst
			if sock := s.track(nc, true); sock != nil {
				s.group.Go(func() { s.greet(sock) })
			}
			continue
		case s.ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		}
		s.warn(s.cfg.Self, WrongCluster, "connections of members are not accepted", err)
		select { // out of descriptors, most likely
		case <-s.ctx.Done():
			return
		case <-time.After(pause):
			pause = min(2*pause, backoffMax)
		}
	}
}

// greet answers the handshake of an accepted connection and serves it.
func (s *Set) greet(sock *socket) {
	c, err := s.answer(sock)
	if err == nil && c.peer.install(c) {
		c.serve()
		return
	}
	hangUp(sock)
	s.untrack(sock)
}

// answer is the handshake of the side that was dialed.
func (s *Set) answer(sock *socket) (*conn, error) {
	tune(sock.Conn)
	began := time.Now()
	deadline := began.Add(s.cfg.waits.handshake)
	if err := sock.awaitFirst(began.Add(s.cfg.waits.first), deadline); err != nil {
		return nil, err
	}
	nc := net.Conn(sock)
	if s.cfg.ServerTLS != nil {
		secure := tls.Server(sock, s.cfg.ServerTLS())
		if err := s.secure(secure, deadline); err != nil {
			return nil, err
		}
		nc = secure
	}
	in := newFrameReader(nc, s.cfg.Group)
	proven, h, err := s.hear(sock, nc, in)
	if err != nil {
		return nil, err
	}
	p, no := s.judge(h, nc, 0)
	if no != nil {
		return nil, s.refuse(nc, h, no, proven)
	}
	if _, err := nc.Write(appendHello(nil, s.hello(h.member, h.class), proven)); err != nil {
		return nil, err
	}
	f, err := in.wait()
	if err != nil {
		return nil, err
	}
	switch f.kind {
	case frameReady:
	case frameRefusal:
		return nil, s.refused(p, f, proven)
	default:
		return nil, errProtocol("frame of type %d instead of ready", f.kind)
	}
	return newConn(p, h, nc, sock, in), sock.SetDeadline(time.Time{})
}

// hear returns the hello of whoever has dialed and proven that it belongs here. It
// is no stranger from then on.
func (s *Set) hear(sock *socket, nc net.Conn, in *frameReader) (*proof, hello, error) {
	proven, err := welcome(nc, in, s.cfg.Keys())
	var no *refusal
	switch {
	case errors.As(err, &no):
		return nil, hello{}, s.refuse(nc, hello{}, no, nil)
	case err != nil:
		return nil, hello{}, err
	}
	f, err := in.wait()
	if err != nil {
		return nil, hello{}, err
	}
	h, err := helloOf(f, proven)
	if err != nil {
		return nil, h, err
	}
	s.mu.Lock()
	s.strangers.leave(sock)
	s.mu.Unlock()
	return proven, h, nil
}

// helloOf returns the hello that a frame is, if the other side's code is right.
func helloOf(f frame, proven *proof) (hello, error) {
	if f.kind != frameHello {
		return hello{}, errProtocol("frame of type %d instead of a hello", f.kind)
	}
	says, err := proven.open(f)
	if err != nil {
		return hello{}, err
	}
	h, err := decodeHello(says)
	if err == nil && !proven.key.good(h.member, h.to) {
		err = errProtocol("a key of member %d between %d and %d", proven.key.Member, h.member, h.to)
	}
	return h, err
}

func (s *Set) secure(c *tls.Conn, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	return c.HandshakeContext(ctx)
}

// connect dials and shakes hands. The connection it returns is installed and
// being served.
func (p *peer) connect(class node.Class) (*conn, error) {
	s := p.set
	address := p.member.Load().Address
	ctx, cancel := context.WithTimeout(p.ctx, s.cfg.waits.dial)
	nc, err := s.cfg.Dial(ctx, address)
	cancel()
	if err != nil {
		p.blame(err)
		return nil, err
	}
	sock := s.track(nc, false)
	if sock == nil {
		return nil, errMuted
	}
	c, err := p.introduce(sock, class, address)
	if err == nil && !p.install(c) {
		err = errNotUp
	}
	if err != nil {
		hangUp(sock)
		s.untrack(sock)
		p.blame(err)
		return nil, err
	}
	s.group.Go(func() {
		// From here on the end of the connection is told by serve, whatever happens.
		if _, err := c.net.Write(endFrame(beginFrame(nil, frameReady, s.cfg.Group), 0)); err != nil {
			c.close(err)
		}
		_ = sock.SetDeadline(time.Time{}) // fails when closed, which the first read tells
		c.serve()
	})
	return c, nil
}

// introduce is the handshake of the side that dials, up to its ready.
func (p *peer) introduce(sock *socket, class node.Class, address string) (*conn, error) {
	s := p.set
	tune(sock.Conn)
	deadline := time.Now().Add(s.cfg.waits.handshake)
	if err := sock.SetDeadline(deadline); err != nil {
		return nil, err
	}
	nc := net.Conn(sock)
	if s.cfg.ClientTLS != nil {
		secure := tls.Client(sock, clientTLS(s.cfg.ClientTLS(), address))
		if err := s.secure(secure, deadline); err != nil {
			return nil, err
		}
		nc = secure
	}
	in := newFrameReader(nc, s.cfg.Group)
	proven, err := meet(nc, in, s.keysFor(p.id))
	var no *refusal
	if errors.As(err, &no) && s.settled() {
		s.warn(p.id, no.reason, "refused by a member", no)
	}
	if err != nil {
		return nil, err
	}
	if _, err := nc.Write(appendHello(nil, s.hello(p.id, class), proven)); err != nil {
		return nil, err
	}
	f, err := in.wait()
	if err != nil {
		return nil, err
	}
	if f.kind == frameRefusal {
		return nil, s.refused(p, f, proven)
	}
	h, err := helloOf(f, proven)
	if err != nil {
		return nil, err
	}
	if _, no := s.judge(h, nc, p.id); no != nil {
		return nil, s.refuse(nc, h, no, proven)
	}
	h.class = class
	return newConn(p, h, nc, sock, in), nil
}

// keysFor are the keys that this member and that one may share.
func (s *Set) keysFor(id uint64) []Key {
	return slices.DeleteFunc(slices.Clone(s.cfg.Keys()), func(k Key) bool { return !k.good(s.cfg.Self, id) })
}

func clientTLS(cfg *tls.Config, address string) *tls.Config {
	if cfg.ServerName != "" || cfg.InsecureSkipVerify {
		return cfg
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	cfg = cfg.Clone()
	cfg.ServerName = host
	return cfg
}

// hello is ours to a member.
func (s *Set) hello(to uint64, class node.Class) hello {
	return hello{
		cluster: s.cfg.Cluster, group: s.cfg.Group, member: s.cfg.Self, to: to,
		shows: s.cfg.Standing(), boot: s.boot, schema: s.cfg.Schema, class: class, name: s.cfg.SelfName,
	}
}

// judge decides about a hello, of the member dialed or, if that is 0, of whoever
// dialed. What the hello shows is in the book when it returns no refusal.
func (s *Set) judge(h hello, nc net.Conn, dialed uint64) (*peer, *refusal) {
	if no := s.stranger(h, dialed); no != nil {
		return nil, no
	}
	if secure, ok := nc.(*tls.Conn); ok {
		cs := secure.ConnectionState()
		if len(cs.PeerCertificates) == 0 {
			return nil, &refusal{WrongCertificate, "no certificate was shown"}
		}
		if err := s.cfg.Verify(cs, h.member); err != nil {
			return nil, &refusal{WrongCertificate, err.Error()}
		}
	}
	if s.cfg.Membership(h.member) == Gone {
		return nil, &refusal{Removed, fmt.Sprintf("member %d was removed from the cluster", h.member)}
	}
	p := (*s.peers.Load())[h.member]
	if p == nil {
		return nil, &refusal{NotKnown, fmt.Sprintf("member %d has not heard of member %d yet", s.cfg.Self, h.member)}
	}
	lower, err := s.book.admit(h.member, h.shows, h.boot, s.cfg.Acknowledged(h.member))
	switch {
	case err != nil:
		s.warn(s.cfg.Self, NotNow, "book of members is not written", err)
		return nil, &refusal{NotNow, "what members have shown cannot be written down"}
	case lower != "":
		return nil, &refusal{RolledBack, fmt.Sprintf("the log of member %d has gone back in time: %s", h.member, lower)}
	case dialed == 0 && s.dials(p.id):
		p.answerKnock(h.boot)
		return nil, &refusal{Dialing, fmt.Sprintf("member %d dials member %d", s.cfg.Self, h.member)}
	}
	return p, nil
}

// stranger refuses a hello that does not belong here at all.
func (s *Set) stranger(h hello, dialed uint64) *refusal {
	switch {
	case h.cluster != s.cfg.Cluster:
		return &refusal{WrongCluster, fmt.Sprintf("cluster %x, this is a member of %x", h.cluster, s.cfg.Cluster)}
	case h.group != s.cfg.Group:
		return &refusal{WrongCluster, fmt.Sprintf("group %d, this is %d", h.group, s.cfg.Group)}
	case h.to != s.cfg.Self:
		return &refusal{WrongCluster, fmt.Sprintf("member %d is wanted, this is %d", h.to, s.cfg.Self)}
	case dialed != 0 && h.member != dialed:
		return &refusal{WrongCluster, fmt.Sprintf("member %d is wanted, this says it is %d", dialed, h.member)}
	case h.member == 0 || h.member == s.cfg.Self:
		return &refusal{WrongCluster, fmt.Sprintf("member %d cannot speak to %d", h.member, s.cfg.Self)}
	}
	return nil
}

// settled reports whether this member has a key that all others have, too. Until then
// some do not know it.
func (s *Set) settled() bool {
	return slices.ContainsFunc(s.cfg.Keys(), func(k Key) bool { return k.Member == 0 })
}

// refuse tells the other side and logs it, once.
func (s *Set) refuse(nc net.Conn, h hello, no *refusal, proven *proof) error {
	_, _ = nc.Write(encodeRefusal(no, s.cfg.Group, proven)) // the other finds out otherwise: the connection closes
	if no.reason == Dialing {
		return no // what was asked for
	}
	s.cfg.Events.Refused(no.reason)
	if no.slow() || no.reason == WrongSecret && s.settled() {
		s.warn(h.member, no.reason, "connection of a member refused", no)
	}
	return no
}

// refused takes the other's refusal of us. Only one with the right code can stop
// this member.
func (s *Set) refused(p *peer, f frame, proven *proof) error {
	says, err := proven.open(f)
	if err != nil {
		return err
	}
	no, err := decodeRefusal(says)
	if err != nil {
		return err
	}
	switch no.reason {
	case Removed:
		s.cfg.Refused(p.id, incumbent.Errorf(incumbent.Denied, "member %d refuses this one: %s", p.id, no.text).
			WithHint("start again with an empty data directory and a join token: the member gets a new id"))
	case RolledBack:
		s.cfg.Refused(p.id, incumbent.Errorf(incumbent.Corrupt, "member %d refuses this one: %s", p.id, no.text).
			WithHint("the data directory was restored from an older copy: empty it and join again under a new id"))
	case NotKnown, NotNow, Dialing:
	default:
		s.warn(p.id, no.reason, "refused by a member", no)
	}
	return no
}

// blame remembers for people why there is no connection.
func (p *peer) blame(err error) {
	p.life.Lock()
	defer p.life.Unlock()
	p.trouble = err.Error()
}
