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

// form is how the events of a watch are written.
type form struct {
	answer protowire.Number // of a stream's frame
	values pb.WatchedValues // of keys: which the entries have
	pick   *rowPick         // of databases: which rows; nil of others
	hides  bool             // no session's id is shown
}

// encoding is that of a form, counted from the one with all values and ids.
func (f form) encoding(first watch.Encoding) watch.Encoding {
	e := first + watch.Encoding(f.values)
	if f.hides {
		e += hiddenEncodings
	}
	return e
}

// This door's numbers among the encodings of an event, with all that it says. Those
// of keys with fewer values follow, by [pb.WatchedValues], and behind them those
// without the ids of sessions.
const (
	hiddenEncodings watch.Encoding = 4

	protoEncoding watch.Encoding = 'n' // as an element of WatchResponse.events, tag and length included
	jsonEncoding  watch.Encoding = 'N' // as jsonCodec writes it
)

// Field numbers of lease.proto, kv.proto and stream.proto that are written by hand.
const (
	fieldEvents    = 1  // WatchResponse, WatchKeysResponse
	fieldProgress  = 2  // WatchResponse, WatchKeysResponse
	fieldSnapshot  = 3  // WatchResponse, WatchKeysResponse
	fieldMore      = 4  // WatchResponse, WatchKeysResponse
	fieldFirst     = 5  // WatchResponse, WatchKeysResponse
	fieldWatch     = 7  // ServerFrame
	fieldWatchKeys = 12 // ServerFrame

	fieldWatchService = 24 // ServerFrame
	fieldWatchTables  = 26 // ServerFrame
)

// mark is what a WatchResponse says besides its events.
type mark struct {
	progress incumbent.Index
	snapshot bool
	more     bool
	first    bool
}

func (m mark) size() int {
	n := sizeVarintField(uint64(m.progress))
	for _, flag := range []bool{m.snapshot, m.more, m.first} {
		n += sizeVarintField(protowire.EncodeBool(flag))
	}
	return n
}

func (m mark) append(b []byte) []byte {
	b = appendVarintField(b, fieldProgress, uint64(m.progress))
	b = appendVarintField(b, fieldSnapshot, protowire.EncodeBool(m.snapshot))
	b = appendVarintField(b, fieldMore, protowire.EncodeBool(m.more))
	return appendVarintField(b, fieldFirst, protowire.EncodeBool(m.first))
}

func (m mark) appendJSON(b []byte) []byte {
	b = append(b, `{"progress_index":"`...)
	b = append(strconv.AppendUint(b, uint64(m.progress), 10), '"')
	for _, flag := range []struct {
		name string
		set  bool
	}{{"snapshot", m.snapshot}, {"more", m.more}, {"first", m.first}} {
		if flag.set {
			b = append(append(append(b, `,"`...), flag.name...), `":true`...)
		}
	}
	return b
}

// piece stands for a WatchResponse or WatchKeysResponse, whose fields are the same,
// in the codecs of this door. It has changes, or what a snapshot shows.
type piece struct {
	door   *Door
	form   form
	events []*watch.Event
	shown  []proto.Message
	mark   mark
}

func (d *Door) piece(f form, b watch.Batch) *piece {
	return &piece{door: d, form: f, events: b.Events, mark: mark{progress: b.Progress, more: !b.Whole()}}
}

func (p *piece) appendProto(b []byte) []byte {
	for _, m := range p.shown {
		b = appendEvent(b, m)
	}
	for _, e := range p.events {
		b = append(b, p.door.encodedEvent(p.form, e)...)
	}
	return p.mark.append(b)
}

func (p *piece) appendJSON(b []byte) []byte {
	b = p.mark.appendJSON(b)
	next := `,"events":[`
	add := func(j []byte) {
		if len(j) > 0 {
			b = append(append(b, next...), j...)
			next = ","
		}
	}
	for _, m := range p.shown {
		add(eventJSON(m))
	}
	for _, e := range p.events {
		add(p.door.encodedJSON(p.form, e))
	}
	if next == "," {
		b = append(b, ']')
	}
	return append(b, '}')
}

// encodedEvent is eventsOf in bytes, made once for all streams and calls.
func (d *Door) encodedEvent(f form, e *watch.Event) []byte {
	return d.encoded(f, e, protoEncoding, appendEvent)
}

// encodedJSON is encodedEvent for whoever reads JSON.
func (d *Door) encodedJSON(f form, e *watch.Event) []byte {
	return d.encoded(f, e, jsonEncoding, func(b []byte, m proto.Message) []byte {
		if len(b) > 0 {
			b = append(b, ',')
		}
		return append(b, eventJSON(m)...)
	})
}

func (d *Door) encoded(f form, e *watch.Event, first watch.Encoding, write func([]byte, proto.Message) []byte) []byte {
	form := func(e *watch.Event) (b []byte) {
		for _, m := range d.formerFor(sight{all: !f.hides}).eventsOf(e, f) {
			b = write(b, m)
		}
		return b
	}
	switch {
	case f.pick == nil:
		return e.Encode(f.encoding(first), form)
	case len(f.pick.ids) > 0:
		return form(e) // who names rows is seldom one of many who name the same
	}
	return e.EncodeFor(f.encoding(first), f.pick.columns, form)
}

func eventJSON(m proto.Message) []byte {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "write an event: %w", err))
	}
	return b
}

// appendEvent appends an event as an element of WatchResponse.events.
func appendEvent(b []byte, m proto.Message) []byte {
	opts := proto.MarshalOptions{UseCachedSize: true}
	b = appendBytesHead(b, fieldEvents, proto.Size(m))
	b, err := opts.MarshalAppend(b, m)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "encode an event: %w", err))
	}
	return b
}

// watchFrame is the beginning of a WebSocket message that answers watch id
// with events of size bytes, which follow it.
func watchFrame(id uint64, answer protowire.Number, size int, m mark) []byte {
	body := size + m.size()
	frame := sizeVarintField(id) + protowire.SizeTag(answer) + protowire.SizeBytes(body)
	message := 1 + protowire.SizeBytes(frame)
	b := make([]byte, 0, websocket.MaxHeader+32)
	b = websocket.AppendHead(b, ws.OpBinary, message)
	b = appendBytesHead(b, fieldFrames, frame)
	b = appendVarintField(b, fieldID, id)
	b = appendBytesHead(b, answer, body)
	return m.append(b)
}
