package consul

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/incumbent-dev/incumbent/core/kv"
)

// entryBytes is about what an entry takes in an answer besides its key and value.
const entryBytes = 160

// appendEntry appends an entry as JSON, in the order of fields that clients are used to.
// A value of nothing is null, and so is one that is left out.
func appendEntry(b []byte, e *kv.Entry, value bool) []byte {
	b = append(b, `{"LockIndex":`...)
	b = strconv.AppendUint(b, e.LockIndex, 10)
	b = appendText(append(b, `,"Key":`...), e.Name)
	b = strconv.AppendUint(append(b, `,"Flags":`...), e.Flags, 10)
	if b = append(b, `,"Value":`...); value && len(e.Value) > 0 {
		b = append(base64.StdEncoding.AppendEncode(append(b, '"'), e.Value), '"')
	} else {
		b = append(b, "null"...)
	}
	if !e.Session.IsZero() {
		b = append(append(append(b, `,"Session":"`...), e.Session.String()...), '"')
	}
	b = strconv.AppendUint(append(b, `,"CreateIndex":`...), uint64(e.Created), 10)
	b = strconv.AppendUint(append(b, `,"ModifyIndex":`...), uint64(e.Modified), 10)
	return append(b, '}')
}

// appendText appends a text as encoding/json writes it.
func appendText(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	quoted, _ := json.Marshal(s) // of a text there is no error
	return append(b, quoted...)
}

// plain reports whether JSON writes a text as it is.
func plain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}
