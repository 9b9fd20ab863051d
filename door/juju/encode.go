package juju

import (
	"strconv"
	"unicode/utf8"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent/websocket"
)

// Replies are written by hand: there are few forms of them, and a fleet gets
// thousands in a second.
//
//	{"request-id":7,"response":{}}
//	{"request-id":7,"response":{"results":[{},{"error":{"message":…,"code":…}}]}}
//	{"request-id":7,"error":…,"error-code":…}

const (
	hexDigits    = "0123456789abcdef"
	replyBytes   = 128 // room for most replies
	resultsBytes = 96  // and for each error in them
)

func replyStart(id uint64, room int) []byte {
	b := websocket.Start(make([]byte, 0, websocket.MaxHeader+replyBytes+room))
	b = append(b, `{"request-id":`...)
	return strconv.AppendUint(b, id, 10)
}

func replyEnd(b []byte) []byte {
	b = append(b, '}')
	return b[websocket.Finish(b, ws.OpText):]
}

// replyEmpty is the reply of a call that has nothing to say.
func replyEmpty(id uint64) []byte {
	return replyEnd(append(replyStart(id, 0), `,"response":{}`...))
}

// replyError refuses a call as a whole.
func replyError(id uint64, f *failure) []byte {
	b := append(replyStart(id, len(f.message)), `,"error":`...)
	b = appendString(b, f.message)
	if f.code != noCode {
		b = appendString(append(b, `,"error-code":`...), codeNames[f.code])
	}
	return replyEnd(b)
}

// replyResult is the reply of a call with one result: nothing, or an error.
func replyResult(id uint64, f *failure) []byte {
	if f == nil {
		return replyEmpty(id)
	}
	b := append(replyStart(id, resultsBytes), `,"response":`...)
	return replyEnd(appendResult(b, f))
}

// replyResults is the reply of a bulk call: a result for each of its params.
func replyResults(id uint64, fs []*failure) []byte {
	b := append(replyStart(id, len(fs)*resultsBytes), `,"response":{"results":[`...)
	for i, f := range fs {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendResult(b, f)
	}
	return replyEnd(append(b, "]}"...))
}

func appendResult(b []byte, f *failure) []byte {
	if f == nil {
		return append(b, "{}"...)
	}
	b = appendString(append(b, `{"error":{"message":`...), f.message)
	b = appendString(append(b, `,"code":`...), codeNames[f.code])
	return append(b, "}}"...)
}

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			b = appendASCII(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(b, `\ufffd`...)
		} else {
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	return append(b, '"')
}

func appendASCII(b []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(b, '\\', c)
	case c < ' ' || c == 0x7f:
		return append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
	default:
		return append(b, c)
	}
}
