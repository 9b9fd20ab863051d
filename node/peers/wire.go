package peers

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/incumbent-dev/incumbent"
)

// A frame. All integers of fixed width are little-endian.
//
//	 0        4      5          8         16       20
//	┌────────┬──────┬──────────┬─────────┬────────┬─────────┐
//	│ length │ type │ 3 × zero │  group  │ crc32c │ payload │
//	└────────┴──────┴──────────┴─────────┴────────┴─────────┘
//
// length counts the payload. The checksum covers everything else: the first 16
// bytes, then the payload. It is there with TLS too, which protects the way from
// socket to socket but not the buffers before and behind it.

// version is of frames and hellos. Members of different versions refuse each
// other.
const version = 2

const headerBytes = 20

// frameType says what a payload is. The numbers are on the wire: append only.
type frameType uint8

const (
	frameHello   frameType = iota + 1
	frameReady             // the dialer took the other's hello: messages follow
	frameRefusal           // instead of a hello or a ready
	frameRaft
	frameForward
	frameRefuse
	frameChunk
	frameTaken
	frameApp
	framePing
	framePong
	frameRedial // open new connections, then close these: the sender's certificate changed
	frameGreeting
	frameChallenge
	frameEnd // one behind the last
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errProtocol is any violation of the format by the other side. The connection
// is closed; nothing of the frame is used.
func errProtocol(format string, args ...any) error {
	return incumbent.Errorf(incumbent.Invalid, "peer protocol: "+format, args...)
}

// beginFrame appends a header to be completed by endFrame.
func beginFrame(b []byte, t frameType, group uint64) []byte {
	b = append(b, 0, 0, 0, 0, byte(t), 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, group)
	return append(b, 0, 0, 0, 0)
}

// endFrame completes the frame that begins at b[at:] and ends with b.
func endFrame(b []byte, at int) []byte {
	f := b[at:]
	binary.LittleEndian.PutUint32(f, uint32(len(f)-headerBytes))
	binary.LittleEndian.PutUint32(f[16:], frameSum(f, f[headerBytes:]))
	return b
}

func frameSum(header, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(header[:16], castagnoli), castagnoli, payload)
}

// frame is one received frame. Its payload is valid until the next call of the
// reader, unless owned is set: then it is nobody else's.
type frame struct {
	kind    frameType
	payload []byte
	owned   bool
}

// frameReader cuts a stream into frames. It belongs to one goroutine.
type frameReader struct {
	r     io.Reader
	group uint64
	known bool // the hellos are over: group and the larger limit hold
	limit int  // bytes of payload
	buf   []byte
	from  int // consumed
	to    int // filled
}

func newFrameReader(r io.Reader, group uint64) *frameReader {
	return &frameReader{r: r, group: group, limit: maxHelloFrame, buf: make([]byte, helloBytes)}
}

// admit lets the larger frames of a class through, whose sender is known.
func (r *frameReader) admit(limit int) {
	buf := make([]byte, readBytes)
	r.to = copy(buf, r.buf[r.from:r.to])
	r.buf, r.from, r.known, r.limit = buf, 0, true, limit
}

// errMore says that the next frame is not complete in the buffer.
var errMore = errors.New("more bytes are needed")

// next returns the next frame if it is there in full, else errMore.
func (r *frameReader) next() (frame, error) {
	b := r.buf[r.from:r.to]
	if len(b) < headerBytes {
		return frame{}, errMore
	}
	n, err := r.check(b)
	if err != nil {
		return frame{}, err
	}
	if len(b) < headerBytes+n {
		return frame{}, errMore
	}
	r.from += headerBytes + n
	return verified(b, b[headerBytes:headerBytes+n:headerBytes+n], false)
}

// check returns the length of the payload that a header announces.
func (r *frameReader) check(header []byte) (int, error) {
	n := binary.LittleEndian.Uint32(header)
	switch kind := frameType(header[4]); {
	case kind == 0 || kind >= frameEnd:
		return 0, errProtocol("frame of unknown type %d", kind)
	case header[5] != 0 || header[6] != 0 || header[7] != 0:
		return 0, errProtocol("frame of type %d has reserved bytes set", kind)
	case uint64(n) > uint64(r.limit):
		return 0, errProtocol("frame of type %d has %d bytes, limit is %d", kind, n, r.limit)
	}
	if g := binary.LittleEndian.Uint64(header[8:]); g != r.group && r.known {
		return 0, errProtocol("frame is for group %d, this connection is of group %d", g, r.group)
	}
	return int(n), nil
}

func verified(header, payload []byte, owned bool) (frame, error) {
	if binary.LittleEndian.Uint32(header[16:]) != frameSum(header, payload) {
		return frame{}, errProtocol("frame of type %d has a wrong checksum", header[4])
	}
	return frame{kind: frameType(header[4]), payload: payload, owned: owned}, nil
}

// fill waits for bytes, once. It is to be called when next said errMore.
func (r *frameReader) fill() error {
	r.to = copy(r.buf, r.buf[r.from:r.to])
	r.from = 0
	n, err := r.r.Read(r.buf[r.to:])
	r.to += n
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// large returns the frame at the front if it does not fit into the buffer,
// reading the rest of it into memory of its own.
func (r *frameReader) large() (frame, bool, error) {
	b := r.buf[r.from:r.to]
	if len(b) < headerBytes {
		return frame{}, false, nil
	}
	n, err := r.check(b)
	if err != nil || headerBytes+n <= len(r.buf) {
		return frame{}, false, err
	}
	payload := make([]byte, n)
	have := copy(payload, b[headerBytes:])
	header := [headerBytes]byte(b)
	r.from, r.to = 0, 0
	if _, err := io.ReadFull(r.r, payload[have:]); err != nil {
		return frame{}, false, err
	}
	f, err := verified(header[:], payload, true)
	return f, err == nil, err
}

// wait returns the next frame, reading as long as it takes.
func (r *frameReader) wait() (frame, error) {
	for {
		f, err := r.next()
		if !errors.Is(err, errMore) {
			return f, err
		}
		if f, ok, err := r.large(); ok || err != nil {
			return f, err
		}
		if err := r.fill(); err != nil {
			return frame{}, err
		}
	}
}
