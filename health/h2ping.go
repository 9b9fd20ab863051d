package health

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// What of HTTP/2 a ping needs, RFC 9113.
const (
	h2Preface    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	h2HeaderSize = 9
	h2MaxFrame   = 16 << 10 // bytes of a frame that a server may send unless it was told more
	h2MaxFrames  = 64       // that are read until the answer
	h2Settings   = 4
	h2Ping       = 6
	h2Ack        = 1
	h2Payload    = "incumben" // 8 bytes that come back
)

var errNoPing = errors.New("no answer to a ping of HTTP/2")

// h2ping connects, and waits for the answer to a ping of HTTP/2.
func (p *prober) h2ping(ctx context.Context, d *Definition) Outcome {
	c, err := p.dial(ctx, "tcp", d.H2Ping)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	defer endWith(ctx, c)()
	if d.H2PingUseTLS {
		cfg := d.tls()
		cfg.NextProtos = []string{"h2"}
		if cfg.ServerName == "" {
			cfg.ServerName = hostOf(d.H2Ping)
		}
		t := tls.Client(c, cfg)
		if err := t.HandshakeContext(ctx); err != nil {
			return failed(err)
		}
		c = t
	}
	if err := ping(c); err != nil {
		return failed(err)
	}
	return Outcome{Status: Passing, Output: "HTTP2 ping was successful"}
}

// ping sends one behind settings that say nothing, and reads until its answer.
func ping(c net.Conn) error {
	out := h2Frame([]byte(h2Preface), h2Settings, nil)
	if _, err := c.Write(h2Frame(out, h2Ping, []byte(h2Payload))); err != nil {
		return err
	}
	var header [h2HeaderSize]byte
	for n := range h2MaxFrames {
		if _, err := io.ReadFull(c, header[:]); err != nil {
			return err
		}
		size, kind, flags := int(binary.BigEndian.Uint32(header[:4])>>8), header[3], header[4]
		if size > h2MaxFrame || n == 0 && kind != h2Settings {
			return errNoPing
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(c, payload); err != nil {
			return err
		}
		if kind == h2Ping && flags&h2Ack != 0 && bytes.Equal(payload, []byte(h2Payload)) {
			return nil
		}
	}
	return errNoPing
}

// h2Frame appends a frame of the connection without flags.
func h2Frame(b []byte, kind byte, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, 0, 0, 0, 0, 0)
	return append(b, payload...)
}
