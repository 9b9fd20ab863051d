package consul

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// player plays one file.
type player struct {
	target  *target
	vars    map[string]string
	given   string // all requests of the file: what they say stays as it is
	started map[string]chan *answer
}

// answer is what a target answered.
type answer struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
	err    error
}

func newPlayer(t *testing.T, target *target, file string) *player {
	t.Helper()
	target.reset(t)
	return &player{target: target, vars: map[string]string{}, given: requestsOf(mustRead(t, file)) + nodeID, started: map[string]chan *answer{}}
}

// requestsOf is a file without the answers.
func requestsOf(text string) string {
	var b strings.Builder
	answer := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "----"):
			answer = true
		case line == "\n":
			answer = false
		case !answer:
			b.WriteString(line)
		}
	}
	return b.String()
}

// step plays a step and returns what is shown of its answer.
func (p *player) step(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	switch d.Cmd {
	case "http":
		return p.show(t, d, p.send(ctx, p.request(t, d.Input)))
	case "start":
		req := p.request(t, d.Input)
		got := make(chan *answer, 1)
		p.started[name(t, d)] = got
		testCtx := t.Context()
		go func() { got <- p.send(testCtx, req) }()
		return ""
	case "pending":
		got := p.started[name(t, d)]
		select {
		case a := <-got:
			got <- a
			return "answered\n"
		case <-time.After(pause):
			return "pending\n"
		}
	case "finish":
		select {
		case a := <-p.started[name(t, d)]:
			return p.show(t, d, a)
		case <-ctx.Done():
			return "no answer\n"
		}
	case "until":
		return p.until(ctx, t, d)
	}
	t.Fatalf("%s: there is no directive %s", d.Pos, d.Cmd)
	return ""
}

// until sends a request until its answer has a text. What it looks at changes by
// itself, as what has a time to live does.
func (p *player) until(ctx context.Context, t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var text string
	d.ScanArgs(t, "contains", &text)
	req := p.request(t, d.Input)
	for {
		a := p.send(ctx, req)
		// A path that is not served will not be.
		if a.err != nil || strings.Contains(string(a.body), text) || strings.HasPrefix(string(a.body), "Invalid URL path") {
			return p.show(t, d, a)
		}
		select {
		case <-time.After(pause / 3):
		case <-ctx.Done():
			return "it never contained that; last " + p.show(t, d, a)
		}
	}
}

func name(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	if len(d.CmdArgs) == 0 {
		t.Fatalf("%s: which one?", d.Pos)
	}
	return d.CmdArgs[0].Key
}

// request is one to send.
type request struct {
	method, path string
	header       http.Header
	body         string
}

var variable = regexp.MustCompile(`\$[a-z][a-z0-9]*|\$\{[a-z][a-z0-9]*\}`)

// request reads one and puts what was saved in.
func (p *player) request(t *testing.T, text string) request {
	t.Helper()
	text = variable.ReplaceAllStringFunc(text, func(v string) string {
		value, ok := p.vars[strings.Trim(v, "${}")]
		if !ok {
			t.Fatalf("nothing was saved as %s", v)
		}
		return value
	})
	first, rest, _ := strings.Cut(text, "\n")
	method, path, ok := strings.Cut(first, " ")
	if !ok {
		t.Fatalf("a request begins with method and path, not %q", first)
	}
	req := request{method: method, path: path, header: http.Header{}}
	for strings.HasPrefix(rest, "@") {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		key, value, _ := strings.Cut(line[1:], ": ")
		req.header.Add(key, value)
	}
	if size, ok := strings.CutPrefix(rest, "!bytes "); ok {
		n, err := strconv.Atoi(size)
		if err != nil {
			t.Fatal(err)
		}
		rest = strings.Repeat("x", n)
	}
	req.body = rest
	return req
}

// send makes the exchange as it is: no header of the client's own, no decoding.
func (p *player) send(ctx context.Context, r request) *answer {
	began := time.Now()
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, p.target.url+r.path, body)
	if err != nil {
		return &answer{err: err}
	}
	req.Header = r.header
	res, err := p.target.client.Do(req)
	if err != nil {
		return &answer{err: err}
	}
	defer res.Body.Close()
	a := &answer{status: res.StatusCode, header: res.Header}
	a.body, a.err = io.ReadAll(res.Body)
	a.took = time.Since(began)
	return a
}

// show saves what a step wants saved of the answer, and writes the rest down.
func (p *player) show(t *testing.T, d *datadriven.TestData, a *answer) string {
	t.Helper()
	if a.err != nil {
		return fmt.Sprintf("no answer: %v\n", a.err)
	}
	var out strings.Builder
	p.showHead(&out, d, a)
	n := p.normal(a)
	out.WriteString(n.body(d, a))
	p.save(t, d, a)
	if d.HasArg("atleast") {
		var text string
		d.ScanArgs(t, "atleast", &text)
		least, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "after at least %v: %v\n", least, a.took >= least)
	}
	return out.String()
}

// folded are headers of all answers to reads, shown in one line.
var folded = []struct{ key, word string }{
	{"X-Consul-Knownleader", "leader"},
	{"X-Consul-Lastcontact", "contact"},
	{"X-Consul-Effective-Consistency", "consistency"},
	{"X-Consul-Query-Backend", "backend"},
}

// usual are headers that are shown only where they are missing or say something else.
var usual = []struct{ key, value string }{{"Vary", "Accept-Encoding"}, {"X-Consul-Default-Acl-Policy", "allow"}}

// shown are the other headers, in the order in which they are shown.
var shown = []string{
	"Allow", "Content-Encoding", "Www-Authenticate", "Location", "Retry-After", "Age", "X-Cache",
	"X-Consul-Reason", "X-Consul-Translate-Addresses", "X-Consul-Results-Filtered-By-Acls", "Access-Control-Allow-Origin", "X-Content-Type-Options",
}

func (p *player) showHead(out *strings.Builder, d *datadriven.TestData, a *answer) {
	out.WriteString(strings.TrimSpace(strconv.Itoa(a.status)+" "+a.header.Get("Content-Type")) + "\n")
	for _, u := range usual {
		if got := strings.Join(a.header[u.key], "+"); got != u.value {
			fmt.Fprintf(out, "%s\n", strings.TrimSpace(u.key+": "+got))
		}
	}
	for _, key := range shown {
		for _, value := range a.header[key] {
			fmt.Fprintf(out, "%s: %s\n", key, value)
		}
	}
	var words []string
	for _, f := range folded {
		if values := a.header[f.key]; len(values) > 0 {
			words = append(words, f.word+" "+strings.Join(values, "+"))
		}
	}
	if len(words) > 0 {
		fmt.Fprintf(out, "read: %s\n", strings.Join(words, ", "))
	}
	var vs string
	for _, arg := range d.CmdArgs {
		if arg.Key == "vs" {
			vs = arg.Vals[0]
		}
	}
	if index := a.header.Get("X-Consul-Index"); index != "" {
		place := p.normal(a).index(index)
		if d.HasArg("anyindex") {
			place = "any"
		}
		fmt.Fprintf(out, "index: %s%s\n", place, p.against(vs, index))
	}
	if hash := a.header.Get("X-Consul-Contenthash"); hash != "" {
		same := ""
		if vs != "" {
			same = fmt.Sprintf(", that of %s: %v", vs, p.vars[vs] == hash)
		}
		fmt.Fprintf(out, "hash: there%s\n", same)
	}
}

// against says how an index stands to a saved one.
func (p *player) against(vs, index string) string {
	if vs == "" {
		return ""
	}
	saved, err1 := strconv.ParseUint(p.vars[vs], 10, 64)
	now, err2 := strconv.ParseUint(index, 10, 64)
	switch {
	case err1 != nil || err2 != nil:
		return ", no number"
	case now > saved:
		return ", after " + vs
	case now < saved:
		return ", before " + vs
	}
	return ", that of " + vs
}
