package native

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// What differs from run to run is replaced: times, and ports.
var (
	times     = regexp.MustCompile(`"(since_unix_ms|sinceUnixMs|at_unix_ms|opened_unix_ms|expires_in_ms|last_extend_ms_ago|late_ms|retry_after_ms|retryAfterMs)": ?"?[1-9][0-9]*"?`)
	extended  = regexp.MustCompile(`\n *"last_extend_ms_ago": ~,`) // left out where it is 0
	addresses = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
)

func tidy(s string) string {
	s = times.ReplaceAllString(s, `"$1": ~`)
	s = extended.ReplaceAllString(s, "")
	return addresses.ReplaceAllString(s, "127.0.0.1:~")
}

// pretty indents JSON, dropping the library's random white space.
func pretty(b []byte) string {
	var v any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(b)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(dropValue(v)); err != nil {
		return string(b)
	}
	return out.String()
}

// dropValue drops the base64 of an error's detail, of which "debug" says the
// same in words.
func dropValue(v any) any {
	switch x := v.(type) {
	case map[string]any:
		if x["debug"] != nil {
			delete(x, "value")
		}
		for k := range x {
			x[k] = dropValue(x[k])
		}
	case []any:
		for i := range x {
			x[i] = dropValue(x[i])
		}
	}
	return v
}

func (m *member) post(method, body string, header ...string) (*http.Response, string) {
	m.tb.Helper()
	r, err := http.NewRequest(http.MethodPost, m.url+"/incumbent.v1."+method, strings.NewReader(body))
	if err != nil {
		m.tb.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		m.tb.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		m.tb.Fatal(err)
	}
	return resp, string(b)
}

// holdFor stops the log until n more proposals are handed in.
func (m *member) holdFor(n int64) {
	until := m.group.Proposed() + n
	m.group.Hold()
	go func() {
		for m.group.Proposed() < until {
			runtime.Gosched()
		}
		m.group.Release()
	}()
}

// The transcripts are calls as curl makes them:
//
//	call METHOD [together=N] [header=NAME:VALUE]…
//	{ request }
//
// together: the log stands still until N commands are handed in, so that the answer
// to none of them changes what becomes of the others. Of a call that streams,
//
//	stream METHOD until=INDEX
//	{ request }
//
// gives the messages up to the one with that progress, or to the error.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/http", func(t *testing.T, path string) {
		m := newMember(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "call":
			case "stream":
				var until uint64
				d.ScanArgs(t, "until", &until)
				return m.streamed(d.CmdArgs[0].Key, d.Input, until)
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			var header []string
			for _, a := range d.CmdArgs[1:] {
				if a.Key == "together" {
					var n int64
					d.ScanArgs(t, "together", &n)
					m.holdFor(n)
					continue
				}
				name, value, _ := strings.Cut(a.Vals[0], ":")
				header = append(header, name, value)
			}
			resp, body := m.post(d.CmdArgs[0].Key, d.Input, header...)
			out := ""
			if resp.StatusCode != http.StatusOK {
				out = fmt.Sprintf("HTTP %d\n", resp.StatusCode)
			}
			return out + tidy(pretty([]byte(body)))
		})
	})
}

// streamed makes a streaming call, whose messages have a byte and their length
// before them, the last one the byte endOfStream.
func (m *member) streamed(method, body string, until uint64) (out string) {
	m.tb.Helper()
	const endOfStream = 2
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	resp, err := http.Post(m.url+"/incumbent.v1."+method, "application/connect+json", io.MultiReader(bytes.NewReader(head), strings.NewReader(body)))
	if err != nil {
		m.tb.Fatal(err)
	}
	defer resp.Body.Close()
	for {
		if _, err := io.ReadFull(resp.Body, head); err != nil {
			m.tb.Fatal(err)
		}
		message := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(resp.Body, message); err != nil {
			m.tb.Fatal(err)
		}
		out += tidy(pretty(message))
		var progress struct {
			Index uint64 `json:"progress_index,string"`
		}
		if err := json.Unmarshal(message, &progress); err != nil {
			m.tb.Fatal(err)
		}
		if head[0] == endOfStream || progress.Index >= until {
			return out
		}
	}
}
