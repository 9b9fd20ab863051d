package native

import (
	"strconv"

	"github.com/gobwas/ws"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/watch"
	"github.com/incumbent-dev/incumbent/websocket"
)

// A watch is told of changes in pieces: a message has up to pullEvents of them
// and about pullBytes, so that neither it nor a queue grows with what one index
// changed. A WebSocket queues the bytes of events that all its readers share; of
// the calls, a codec puts them into the one message that is being written.

// This door's numbers among the encodings of an event.
const (
	protoEncoding watch.Encoding = 'n' // a LeaseEvent as an element of WatchResponse.events, tag and length included
	jsonEncoding  watch.Encoding = 'N' // a LeaseEvent as jsonCodec writes it
)

// Field numbers of lease.proto and stream.proto that are written by hand.
const (
	fieldEvents   = 1 // WatchResponse
	fieldProgress = 2 // WatchResponse
	fieldSnapshot = 3 // WatchResponse
	fieldMore     = 4 // WatchResponse
	fieldWatch    = 7 // ServerFrame
)

// mark is what a WatchResponse says besides its events.
type mark struct {
	progress incumbent.Index
	snapshot bool
	more     bool
}

func (m mark) size() int {
	return sizeVarintField(uint64(m.progress)) + sizeVarintField(protowire.EncodeBool(m.snapshot)) + sizeVarintField(protowire.EncodeBool(m.more))
}

func (m mark) append(b []byte) []byte {
	b = appendVarintField(b, fieldProgress, uint64(m.progress))
	b = appendVarintField(b, fieldSnapshot, protowire.EncodeBool(m.snapshot))
	return appendVarintField(b, fieldMore, protowire.EncodeBool(m.more))
}

// piece stands for a WatchResponse in the codecs of this door.
type piece struct {
	door   *Door
	events []*watch.Event
	mark   mark
}

func (d *Door) piece(b watch.Batch) *piece {
	return &piece{d, b.Events, mark{progress: b.Progress, more: !b.Whole()}}
}

func (p *piece) appendProto(b []byte) []byte {
	for _, e := range p.events {
		b = append(b, p.door.encodedEvent(e)...)
	}
	return p.mark.append(b)
}

func (p *piece) appendJSON(b []byte) []byte {
	b = append(b, `{"progress_index":"`...)
	b = append(strconv.AppendUint(b, uint64(p.mark.progress), 10), '"')
	if p.mark.more {
		b = append(b, `,"more":true`...)
	}
	next := `,"events":[`
	for _, e := range p.events {
		if j := p.door.eventJSON(e); len(j) > 0 {
			b = append(append(b, next...), j...)
			next = ","
		}
	}
	if next == "," {
		b = append(b, ']')
	}
	return append(b, '}')
}

// encodedEvent is eventOf in bytes, made once for all streams and calls.
func (d *Door) encodedEvent(e *watch.Event) []byte {
	return e.Encode(protoEncoding, func(e *watch.Event) []byte {
		m := d.former().eventOf(e)
		if m == nil {
			return nil
		}
		return appendEvent(nil, m)
	})
}

// eventJSON is encodedEvent for whoever reads JSON.
func (d *Door) eventJSON(e *watch.Event) []byte {
	return e.Encode(jsonEncoding, func(e *watch.Event) []byte {
		m := d.former().eventOf(e)
		if m == nil {
			return nil
		}
		b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			panic(incumbent.Errorf(incumbent.Internal, "write an event of lease %v: %w", m.Lease, err))
		}
		return b
	})
}

// appendEvent appends a LeaseEvent as an element of WatchResponse.events.
func appendEvent(b []byte, m *pb.LeaseEvent) []byte {
	opts := proto.MarshalOptions{UseCachedSize: true}
	b = appendBytesHead(b, fieldEvents, proto.Size(m))
	b, err := opts.MarshalAppend(b, m)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "encode an event of lease %v: %w", m.Lease, err))
	}
	return b
}

// watchFrame is the beginning of a WebSocket message that answers watch id
// with events of size bytes, which follow it.
func watchFrame(id uint64, size int, m mark) []byte {
	body := size + m.size()
	frame := sizeVarintField(id) + 1 + protowire.SizeBytes(body)
	message := 1 + protowire.SizeBytes(frame)
	b := make([]byte, 0, websocket.MaxHeader+32)
	b = websocket.AppendHead(b, ws.OpBinary, message)
	b = appendBytesHead(b, fieldFrames, frame)
	b = appendVarintField(b, fieldID, id)
	b = appendBytesHead(b, fieldWatch, body)
	return m.append(b)
}
