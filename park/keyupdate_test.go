package park

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// The types of records and messages that the tests send (RFC 8446, appendix B).
const (
	recordHandshake   = 22
	recordApplication = 23
	messageTicket     = 4
	messageKeyUpdate  = 24
)

// tlsWriter makes the records of a client of TLS 1.3 whose handshake is done, as
// RFC 8446, sections 5.2 and 7.2 have it, for crypto/tls itself updates no keys.
type tlsWriter struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

// dialTLSWriter connects a client of which the test makes the records itself.
// What the server sends is for the test to read, or not to.
func (r *rig) dialTLSWriter(t *testing.T) (net.Conn, *tlsWriter) {
	t.Helper()
	conn, err := net.Dial(r.ln.Addr().Network(), r.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	var secrets bytes.Buffer
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, KeyLogWriter: &secrets})
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	if secure.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skip("TLS_AES_128_GCM_SHA256 is not what this machine prefers")
	}
	for line := range strings.Lines(secrets.String()) {
		if f := strings.Fields(line); f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			w := &tlsWriter{}
			w.use(secret)
			return conn, w
		}
	}
	t.Fatal("crypto/tls does not tell its secrets")
	return nil, nil
}

// use takes a traffic secret into use.
func (w *tlsWriter) use(secret []byte) {
	w.secret, w.seq = secret, 0
	block, err := aes.NewCipher(expandLabel(secret, "key", 16))
	if err != nil {
		panic(err)
	}
	if w.aead, err = cipher.NewGCM(block); err != nil {
		panic(err)
	}
	w.iv = expandLabel(secret, "iv", 12)
}

// expandLabel is HKDF-Expand-Label without a context (RFC 8446, section 7.1).
func expandLabel(secret []byte, label string, length int) []byte {
	label = "tls13 " + label
	info := string(binary.BigEndian.AppendUint16(nil, uint16(length))) + string(rune(len(label))) + label + "\x00"
	out, err := hkdf.Expand(sha256.New, secret, info, length)
	if err != nil {
		panic(err)
	}
	return out
}

// record appends a record.
func (w *tlsWriter) record(to []byte, kind byte, content ...byte) []byte {
	plain := append(content, kind)
	head := []byte{recordApplication, 3, 3, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(plain)+w.aead.Overhead()))
	nonce := bytes.Clone(w.iv)
	low := nonce[len(nonce)-8:]
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)^w.seq)
	w.seq++
	return w.aead.Seal(append(to, head...), nonce, plain, head)
}

// updates appends as many key updates as crypto/tls takes, all to be answered, and
// a byte of data, with which it takes as many again.
func (w *tlsWriter) updates(to []byte) []byte {
	const most, requested = 16, 1
	for range most {
		to = w.record(to, recordHandshake, messageKeyUpdate, 0, 0, 1, requested)
		w.use(expandLabel(w.secret, "traffic upd", sha256.Size))
	}
	return w.record(to, recordApplication, 'x')
}

// The answers to key updates wait for a reader as all that is sent does.
func TestG18_AnswersToKeyUpdatesAreBounded(t *testing.T) {
	for _, v := range []variant{{name: "poller", tls: true, unix: true}, {name: "portable", portable: true, tls: true, unix: true}} {
		t.Run(v.name, func(t *testing.T) {
			e := newEchoer()
			r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxQueuedBytes: 64 << 10}}, func() Handler { return e })
			conn, w := r.dialTLSWriter(t)
			// Unix sockets hold some 200 kB, of which small writes take several times their size.
			for range 2000 {
				if _, err := conn.Write(w.updates(nil)); err != nil {
					break
				}
			}
			barrierOf(t, r.set)
			e.mustEnd(t, SlowReader, incumbent.TooLarge)
		})
	}
}

// The answers leave while a client reads, and it can read all of them.
func TestKeyUpdatesAreAnswered(t *testing.T) {
	for _, v := range []variant{{name: "poller", tls: true}, {name: "portable", portable: true, tls: true}} {
		t.Run(v.name, func(t *testing.T) {
			e := newEchoer()
			r := newRig(t, v, Config{Ticks: still()}, func() Handler { return e })
			conn, w := r.dialTLSWriter(t)
			const groups, answer = 50, 27 // a header, a message of five bytes, its type, a tag
			var all []byte
			for range groups {
				all = w.updates(all)
			}
			if _, err := conn.Write(all); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, conn, groups*16*answer); err != nil {
				t.Fatal(err)
			}
			e.mustBeOpen(t, "after key updates")
		})
	}
}
