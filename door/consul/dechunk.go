package consul

import "bytes"

// Bounds of what stands around chunks (RFC 9112, section 7.1): nobody needs more.
const (
	maxChunkLine    = 4<<10 - 1 // size and extensions, with the line's end
	maxTrailerBytes = 4 << 10   // all lines behind the last chunk, with their ends
	maxChunkExcess  = 16 << 10
)

// dechunk takes a body out of its chunks as they come.
type dechunk struct {
	state  chunkState
	left   int64 // of the chunk
	excess int64 // bytes around chunks, beyond what chunks of a useful size need
	seen   int   // bytes of trailers
}

type chunkState uint8

const (
	chunkSize    chunkState = iota // its line comes next
	chunkData                      // left bytes
	chunkEnd                       // the line end behind them
	chunkTrailer                   // lines until an empty one
	chunksOver
)

func (d *dechunk) over() bool { return d.state == chunksOver }

// next takes one step: it returns how many bytes it used, 0: more must come; and those
// of them that are the body's. It is false if the bytes are no chunks.
func (d *dechunk) next(data []byte) (used int, part []byte, ok bool) {
	if d.state == chunkData {
		n := int(min(d.left, int64(len(data))))
		if d.left -= int64(n); d.left == 0 {
			d.state = chunkEnd
		}
		return n, data[:n], true
	}
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		return 0, nil, len(data) < maxChunkLine
	}
	// A bare LF, or a CR within, two servers read differently.
	line, ok := bytes.CutSuffix(data[:end], []byte("\r"))
	if !ok || end >= maxChunkLine || bytes.IndexByte(line, '\r') >= 0 {
		return 0, nil, false
	}
	return end + 1, nil, d.line(line)
}

func (d *dechunk) line(line []byte) bool {
	switch d.state {
	case chunkSize:
		size, ok := sizeOf(line)
		if !ok {
			return false
		}
		d.excess = max(0, d.excess+int64(len(line))+2-16-2*size)
		d.left, d.state = size, chunkData
		if size == 0 {
			d.state = chunkTrailer
		}
		return d.excess <= maxChunkExcess
	case chunkEnd:
		d.state = chunkSize
		return len(line) == 0
	case chunkTrailer:
		d.seen += len(line) + len("\r\n")
		if len(line) == 0 {
			d.state = chunksOver
			return d.seen <= maxTrailerBytes
		}
		name, value, ok := bytes.Cut(line, []byte{':'})
		return ok && d.seen <= maxTrailerBytes && isToken(string(name)) && isText(string(value))
	}
	return true
}

// sizeOf reads a chunk's size, in hexadecimal, before its extensions.
func sizeOf(line []byte) (size int64, ok bool) {
	word, _, _ := bytes.Cut(line, []byte(";"))
	word = bytes.TrimRight(word, " \t")
	if len(word) == 0 || len(word) > 15 {
		return 0, false
	}
	for _, c := range word {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		size = size<<4 | int64(c)
	}
	return size, true
}
