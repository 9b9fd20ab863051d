package consul

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// What differs from run to run is written as a word. Of indexes their order within one
// answer stays, its header's included; ids that the file's requests
// name stay as they are.
var (
	uuid    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	versus  = regexp.MustCompile(`index \d+ != \d+`)
	address = regexp.MustCompile(`127\.0\.0\.1:\d{4,5}`)
	indexes = regexp.MustCompile(`"(Create|Modify)Index": ?\d+`)
	moment  = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)( [A-Z]+)?`)
)

// lineWidth is from where on an array or object is written over several lines.
const lineWidth = 120

// normal writes one answer.
type normal struct {
	p     *player
	ranks map[uint64]int // of the indexes that occur in the answer
	value any            // the body, if it is JSON
}

func (p *player) normal(a *answer) *normal {
	n := &normal{p: p, ranks: map[uint64]int{}}
	decoder := json.NewDecoder(bytes.NewReader(plain(a)))
	decoder.UseNumber()
	if decoder.Decode(&n.value) != nil {
		n.value = nil
	} else if _, err := decoder.Token(); err != io.EOF {
		n.value = nil // more than one value is none
	}
	seen := map[uint64]bool{}
	if index, err := strconv.ParseUint(a.header.Get("X-Consul-Index"), 10, 64); err == nil {
		seen[index] = true
	}
	collect(n.value, seen)
	var all []uint64
	for index := range seen {
		all = append(all, index)
	}
	slices.Sort(all)
	for i, index := range all {
		n.ranks[index] = i + 1
	}
	return n
}

// plain is the body without its encoding.
func plain(a *answer) []byte {
	if a.header.Get("Content-Encoding") != "gzip" {
		return a.body
	}
	r, err := gzip.NewReader(bytes.NewReader(a.body))
	if err != nil {
		return a.body
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return a.body
	}
	return text
}

// isIndex reports whether a member of an object is an index of the log. LockIndex
// counts, OpIndex is a place.
func isIndex(key string) bool {
	return key == "CreateIndex" || key == "ModifyIndex" || key == "LastIndex"
}

func collect(v any, into map[uint64]bool) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			collect(e, into)
		}
	case map[string]any:
		for key, e := range v {
			if number, ok := e.(json.Number); ok && isIndex(key) {
				if index, err := strconv.ParseUint(number.String(), 10, 64); err == nil && index > 0 {
					into[index] = true
				}
				continue
			}
			collect(e, into)
		}
	}
}

// index is the place of an index among those of the answer; 0 is 0.
func (n *normal) index(text string) string {
	index, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return text
	}
	return strconv.Itoa(n.ranks[index])
}

// body is what is shown of the body, in lines.
func (n *normal) body(d *datadriven.TestData, a *answer) string {
	text := string(plain(a))
	switch {
	case text == "":
		return ""
	case d.HasArg("count"):
		list, _ := n.value.([]any)
		return fmt.Sprintf("%d elements\n", len(list))
	case n.value == nil || d.HasArg("raw"):
		return n.text(text)
	case d.HasArg("keys"):
		return n.write(keysOf(n.value), 0) + "\n"
	}
	if wanted := fieldsOf(d); wanted != nil {
		kept := only(n.value, wanted)
		if d.HasArg("sorted") {
			kept = n.sorted(kept)
		}
		return n.write(kept, 0) + "\n"
	}
	if d.HasArg("sorted") {
		return n.write(n.sorted(n.value), 0) + "\n"
	}
	return n.write(n.value, 0) + "\n"
}

// sorted brings lists whose order is that of ids, or of nothing, into one that says the
// same in each run.
func (n *normal) sorted(v any) any {
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			v[i] = n.sorted(e)
		}
		slices.SortStableFunc(v, func(a, b any) int { return strings.Compare(n.write(a, 0), n.write(b, 0)) })
	case map[string]any:
		for key, e := range v {
			v[key] = n.sorted(e)
		}
	}
	return v
}

// text is a body that is no JSON, or is shown as it was sent: what ends a line shows.
func (n *normal) text(text string) string {
	text = indexes.ReplaceAllStringFunc(n.words(text), func(found string) string {
		at := strings.LastIndexAny(found, " :") + 1
		return found[:at] + n.index(found[at:])
	})
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	} else {
		text += "(a line's end)\n"
	}
	return strings.ReplaceAll(text, "\n\n", "\n(empty)\n")
}

func fieldsOf(d *datadriven.TestData) []string {
	for _, arg := range d.CmdArgs {
		if arg.Key == "fields" {
			return arg.Vals
		}
	}
	return nil
}

// only keeps members by name, in an object or in each of a list.
func only(v any, wanted []string) any {
	switch v := v.(type) {
	case []any:
		list := []any{}
		for _, e := range v {
			list = append(list, only(e, wanted))
		}
		return list
	case map[string]any:
		kept := map[string]any{}
		for _, key := range wanted {
			if e, ok := v[key]; ok {
				kept[key] = e
			}
		}
		return kept
	}
	return v
}

func keysOf(v any) any {
	object, ok := v.(map[string]any)
	if !ok {
		return v
	}
	names := []any{}
	for _, key := range sorted(object) {
		names = append(names, key)
	}
	return names
}

func sorted(object map[string]any) []string {
	var keys []string
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// words puts words for ids, addresses and times that the requests did not name.
func (n *normal) words(text string) string {
	for name, value := range n.p.vars {
		if uuid.MatchString(value) {
			text = strings.ReplaceAll(text, value, "<"+name+">")
		}
	}
	replace := func(word string) func(string) string {
		return func(found string) string {
			if strings.Contains(n.p.given, found) {
				return found
			}
			return word
		}
	}
	text = uuid.ReplaceAllStringFunc(text, replace("<uuid>"))
	text = versus.ReplaceAllString(text, "index <one> != <other>")
	text = address.ReplaceAllStringFunc(text, replace("127.0.0.1:<port>"))
	return moment.ReplaceAllStringFunc(text, replace("<time>"))
}

// write writes a value in one line, or where that is too long with a line for each
// element.
func (n *normal) write(v any, depth int) string {
	var open, end string
	var parts []string
	switch v := v.(type) {
	case []any:
		open, end = "[", "]"
		for _, e := range v {
			parts = append(parts, n.write(e, depth+1))
		}
	case map[string]any:
		open, end = "{", "}"
		for _, key := range sorted(v) {
			parts = append(parts, quote(n.words(key))+":"+n.member(v, key, depth+1))
		}
	case string:
		return quote(n.words(v))
	case json.Number:
		return v.String()
	default:
		text, _ := json.Marshal(v)
		return string(text)
	}
	line := open + strings.Join(parts, ",") + end
	if len(line)+2*depth <= lineWidth && !strings.Contains(line, "\n") {
		return line
	}
	indent := "\n" + strings.Repeat(" ", depth+1)
	return open + indent + strings.Join(parts, ","+indent) + "\n" + strings.Repeat(" ", depth) + end
}

func (n *normal) member(object map[string]any, key string, depth int) string {
	number, isNumber := object[key].(json.Number)
	switch {
	case isNumber && isIndex(key):
		return n.index(number.String())
	case isNumber && strings.HasSuffix(key, "Port") && number != "0" && ofServer(object):
		return `"<port>"`
	case isNumber && key == "LTime" && number != "0": // how many events there were, or indexes
		return `"<time>"`
	case key == "incumbent-member":
		return `"<member>"`
	case key == "ContentHash":
		return `"<hash>"`
	}
	return n.write(object[key], depth)
}

// ofServer reports whether a record is of the service of the servers themselves, whose
// port is whatever was free.
func ofServer(object map[string]any) bool {
	return object["Service"] == "consul" || object["ServiceName"] == "consul"
}

func quote(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string has an encoding
	return strings.TrimSuffix(b.String(), "\n")
}

// save keeps what later requests name.
func (p *player) save(t *testing.T, d *datadriven.TestData, a *answer) {
	t.Helper()
	n := p.normal(a)
	for _, arg := range d.CmdArgs {
		value := ""
		switch arg.Key {
		case "index":
			value = a.header.Get("X-Consul-Index")
		case "hash":
			value = a.header.Get("X-Consul-Contenthash")
		case "id":
			object, _ := n.value.(map[string]any)
			value, _ = object["ID"].(string)
		case "modify":
			value = modifyIndex(n.value)
		default:
			continue
		}
		p.vars[arg.Vals[0]] = value
	}
}

func modifyIndex(v any) string {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	object, _ := v.(map[string]any)
	number, _ := object["ModifyIndex"].(json.Number)
	return number.String()
}
