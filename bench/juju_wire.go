package bench

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/gobwas/ws"
)

// What Juju's client says. Its requests are JSON in text frames:
//
//	{"request-id":2,"type":"LeadershipService","version":2,"request":"ClaimLeadership",
//	 "params":{"params":[{"application-tag":"application-app","unit-tag":"unit-app-0","duration":60}]}}
//
// and a reply is one of
//
//	{"request-id":2,"response":{…}}
//	{"request-id":2,"error":"…","error-code":"…"}
const (
	jujuVersion     = "2.9.52"
	jujuDenied      = "leadership claim denied"
	jujuTryAgain    = "try again"
	jujuPingEvery   = time.Minute
	maxJujuMessage  = 64 << 10 // bytes of one reply
	jujuLoginID     = 1        // request ids start at it, on each connection
	jujuFrameHeader = 8        // of a masked frame of up to 64 KiB
)

// jujuLogin is who connects, and to which model.
type jujuLogin struct {
	Model    string `json:"model"`           // UUID
	Agent    string `json:"agent,omitempty"` // tag everybody logs in as; "": each unit as itself
	Password string `json:"password"`
}

// appendLogin appends the request that a connection begins with.
func (l jujuLogin) appendLogin(b []byte, unit *unit) []byte {
	tag := l.Agent
	if tag == "" {
		tag = unit.tag()
	}
	b = append(b, `{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":`...)
	b = appendJSON(b, tag)
	b = appendJSON(append(b, `,"credentials":`...), l.Password)
	return append(b, `,"nonce":"","macaroons":null,"bakery-version":3,"cli-args":"incumbent bench","user-data":"","client-version":"`+jujuVersion+`"}}`...)
}

func appendJSON(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("bench: a string has no JSON: " + err.Error()) // every string has
	}
	return append(b, text...)
}

func appendCall(b []byte, id uint64, facade string, version int, method string) []byte {
	b = strconv.AppendUint(append(b, `{"request-id":`...), id, 10)
	b = append(append(b, `,"type":"`...), facade...)
	b = strconv.AppendInt(append(b, `","version":`...), int64(version), 10)
	b = append(append(b, `,"request":"`...), method...)
	return append(b, `","params":`...)
}

func appendJujuClaim(b []byte, id uint64, u *unit, ttl time.Duration) []byte {
	b = appendCall(b, id, "LeadershipService", 2, "ClaimLeadership")
	b = append(append(b, `{"params":[{"application-tag":"application-`...), u.application()...)
	b = append(append(b, `","unit-tag":"`...), u.tag()...)
	b = strconv.AppendFloat(append(b, `","duration":`...), ttl.Seconds(), 'g', -1, 64)
	return append(b, `}]}}`...)
}

func appendJujuBlock(b []byte, id uint64, u *unit) []byte {
	b = appendCall(b, id, "LeadershipService", 2, "BlockUntilLeadershipReleased")
	b = append(append(b, `{"Name":"`...), u.application()...)
	return append(b, `"}}`...)
}

func appendJujuPing(b []byte, id uint64) []byte {
	return append(appendCall(b, id, "Pinger", 1, "Ping"), `{}}`...)
}

// jujuFrame makes a client's frame of the payload that stands behind room for its
// header, and returns the frame.
func jujuFrame(b []byte, op ws.OpCode) []byte {
	payload := b[jujuFrameHeader:]
	mask := rand.Uint32()
	var key [4]byte
	binary.LittleEndian.PutUint32(key[:], mask)
	ws.Cipher(payload, key, 0)
	copy(b[jujuFrameHeader-len(key):], key[:])
	start := 0
	if n := len(payload); n < 126 {
		start = 2
		b[3] = 0x80 | byte(n)
	} else {
		b[1] = 0x80 | 126
		binary.BigEndian.PutUint16(b[2:], uint16(n))
	}
	b[start] = 0x80 | byte(op)
	return b[start:]
}

// jujuReply is one reply. Keys are read as Juju's client reads them.
type jujuReply struct {
	ID       uint64          `json:"request-id"`
	Error    string          `json:"error"`
	Code     string          `json:"error-code"`
	Response json.RawMessage `json:"response"`
}

// Replies that need no decoding, as they follow the id.
var (
	replyHead   = []byte(`{"request-id":`)
	replyDone   = []byte(`,"response":{}}`)
	replyClaim  = []byte(`,"response":{"results":[{}]}}`)
	replyDenied = []byte(`,"response":{"results":[{"error":{"message":"` + jujuDenied + `","code":"` + jujuDenied + `"}}]}}`)
)

// readReply decodes a reply; claim says that it answers a claim of one unit. A
// refused claim is an error as one of the whole call is.
func readReply(payload []byte) (r jujuReply, err error) {
	switch id, rest, ok := replyID(payload); {
	case ok && (bytes.Equal(rest, replyDone) || bytes.Equal(rest, replyClaim)):
		return jujuReply{ID: id}, nil
	case ok && bytes.Equal(rest, replyDenied):
		return jujuReply{ID: id, Error: jujuDenied, Code: jujuDenied}, nil
	}
	if err := json.Unmarshal(payload, &r); err != nil || r.ID == 0 {
		return r, fmt.Errorf("%w: a reply is %.80q", errWire, payload)
	}
	var body struct {
		Results []struct {
			Error *struct{ Message, Code string }
		}
		Error *struct{ Message, Code string }
	}
	if len(r.Response) > 0 {
		if err := json.Unmarshal(r.Response, &body); err != nil {
			return r, fmt.Errorf("%w: a response is %.80q", errWire, r.Response)
		}
	}
	for _, one := range body.Results {
		if one.Error != nil {
			body.Error = one.Error
		}
	}
	if body.Error != nil {
		r.Error, r.Code = body.Error.Message, body.Error.Code
	}
	return r, nil
}

func replyID(payload []byte) (id uint64, rest []byte, ok bool) {
	digits, ok := bytes.CutPrefix(payload, replyHead)
	n := 0
	for ; n < len(digits) && n < 18 && digits[n] >= '0' && digits[n] <= '9'; n++ {
		id = id*10 + uint64(digits[n]-'0')
	}
	return id, digits[n:], ok && id > 0
}

// jujuInbound is a frame from the server.
type jujuInbound struct {
	op      ws.OpCode
	payload []byte // within the bytes given
	size    int    // bytes it took; 0: not complete
}

// nextFrame reads the frame that b begins with. Servers of Juju send each message
// as one frame.
func nextFrame(b []byte) (jujuInbound, error) {
	if len(b) < 2 {
		return jujuInbound{}, nil
	}
	op, size, n := ws.OpCode(b[0]&0x0f), 2, uint64(b[1]&0x7f)
	if b[0]&0xf0 != 0x80 || b[1]&0x80 != 0 {
		return jujuInbound{}, fmt.Errorf("%w: a frame begins with %x", errWire, b[:2])
	}
	switch n {
	case 126:
		if size = 4; len(b) < size {
			return jujuInbound{}, nil
		}
		n = uint64(binary.BigEndian.Uint16(b[2:]))
	case 127:
		if size = 10; len(b) < size {
			return jujuInbound{}, nil
		}
		n = binary.BigEndian.Uint64(b[2:])
	}
	if n > maxJujuMessage {
		return jujuInbound{}, fmt.Errorf("%w: a frame of %d bytes", errWire, n)
	}
	if end := size + int(n); len(b) >= end {
		return jujuInbound{op: op, payload: b[size:end], size: end}, nil
	}
	return jujuInbound{}, nil
}
