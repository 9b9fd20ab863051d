package ovsdb

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// player sends random requests on one connection, and takes what comes.
type player struct {
	*client
	r *rand.Rand

	answered map[string]int
}

// TestPlay has several clients ask for all kinds of things at once, valid or not: each
// request is answered once, nothing panics, nobody hangs.
func TestPlay(t *testing.T) { playAt(t, startWithSchema(t)) }

// TestPlayWithLostChanges is TestPlay where changes are gone before they are handed on, as
// often as there are several.
func TestPlayWithLostChanges(t *testing.T) {
	m := startWithSchema(t)
	m.forgetful()
	for range 20 { // what is lost depends on who is slow, and in one play of thirty nobody is
		if playAt(t, m); m.gaps() > 0 {
			return
		}
	}
	t.Error("no changes were lost")
}

func playAt(t *testing.T, m *member) {
	t.Helper()
	const clients, requests = 4, 150
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any will do
	t.Logf("seed %d", seed)
	shadow := m.shadow()
	var all sync.WaitGroup
	for i := range clients {
		p := &player{client: m.dial(), r: rand.New(rand.NewPCG(seed, uint64(i))), answered: map[string]int{}} //nolint:gosec // it is not negative
		all.Go(func() { p.play(requests) })
	}
	all.Wait()
	shadow.check(m)
}

// play asks, while it reads, until all is answered.
func (p *player) play(n int) {
	go func() {
		var text strings.Builder
		for i := range n {
			text.WriteString(p.request(i))
			for text.Len() > 0 && p.r.IntN(3) > 0 || i == n-1 && text.Len() > 0 {
				k := 1 + p.r.IntN(text.Len())
				if _, err := p.conn.Write([]byte(text.String()[:k])); err != nil {
					p.tb.Error(err)
					return
				}
				rest := text.String()[k:]
				text.Reset()
				text.WriteString(rest)
			}
		}
	}()
	left := n
	for left > 0 {
		var msg struct {
			ID     json.RawMessage
			Method string
		}
		if err := p.in.Decode(&msg); err != nil {
			p.tb.Errorf("%d answers are missing: %v", left, err)
			return
		}
		if msg.Method != "" {
			continue
		}
		left--
		p.answered[string(msg.ID)]++
	}
	for id, times := range p.answered {
		if want := n / distinct; times != want {
			p.tb.Errorf("request %s was answered %d times, asked %d", id, times, want)
		}
	}
}

// distinct ids are used for the requests of a player, again and again.
const distinct = 50

// request is a random one with an id, sometimes behind a notification.
func (p *player) request(i int) string {
	id := fmt.Sprintf(`{"n":%d,"pad":"%s"}`, i%distinct, strings.Repeat("p", i%distinct*20))
	if p.r.IntN(8) == 0 {
		return `{"id":null,"method":"cancel","params":[` + p.pick(id, `7`, `{}`) + `]} ` + p.ask(id)
	}
	return p.ask(id)
}

func (p *player) pick(of ...string) string { return of[p.r.IntN(len(of))] }

func (p *player) ask(id string) string {
	name := func() string { return p.pick(`"m"`, `"n"`, `["x",1]`, `null`) }
	where := func() string {
		return p.pick(`[]`, `[true]`, `[false]`, `[["name","==","a"]]`, `[["chassis","==","c1"],["tags","includes","x"]]`, `[["_uuid","==",1]]`, `[["name","<",1]]`, `{}`, `[["chassis","==",["set",[]]]]`)
	}
	tables := func() string {
		return p.pick(`{}`, `[]`, `{"R":{}}`, `{"Q":{}}`, `{"P":{"columns":["name","chassis"],"where":`+where()+`}}`,
			`{"P":[{"where":`+where()+`}],"Q":{"columns":["n"],"where":`+where()+`}}`, `{"P":{"columns":["tags"],"select":{"modify":false,"initial":true}}}`, `{"P":{"columns":[7]}}`)
	}
	switch method := p.pick("transact", "transact", "transact", "transact", "monitor", "monitor_cond", "monitor_cond_since", "monitor_cond_change", "monitor_cancel",
		"lock", "unlock", "steal", "echo", "list_dbs", "get_schema", "get_server_id", "set_db_change_aware", "frob", "cancel", "odd"); method {
	case "transact":
		return ask(id, method, p.transact(where))
	case "monitor", "monitor_cond":
		return ask(id, method, `[`+p.pick(`"T"`, `"_Server"`, `"none"`, `1`)+`,`+name()+`,`+tables()+`]`)
	case "monitor_cond_since":
		return ask(id, method, `["T",`+name()+`,`+tables()+p.pick(``, `,"x"`, `,"00000000-0000-0000-0000-000000000000"`)+`]`)
	case "monitor_cond_change":
		return ask(id, method, `[`+name()+`,`+name()+`,`+tables()+`]`)
	case "monitor_cancel":
		return ask(id, method, `[`+name()+`]`)
	case "lock", "unlock", "steal":
		return ask(id, method, p.pick(`["l"]`, `["k"]`, `[1]`, `[]`, `{}`))
	case "get_schema":
		return ask(id, method, p.pick(`["T"]`, `["_Server"]`, `["none"]`, `[]`, `7`))
	case "set_db_change_aware":
		return ask(id, method, p.pick(`[true]`, `[false]`, `["x"]`))
	case "odd":
		return `{"params":` + p.pick(`null`, `7`, `{"a":[]}`, `"x"`) + `,"id":` + id + `,"method":` + p.pick(`7`, `[]`, `"transact"`, `"lock"`, `"monitor"`, `"convert"`, `"echo"`) + `}`
	default:
		return ask(id, method, `[1.0,{"a":"x"}]`)
	}
}

func (p *player) transact(where func() string) string {
	ops := []string{}
	for range 1 + p.r.IntN(3) {
		ops = append(ops, p.pick(
			`{"op":"insert","table":"P","row":{"name":"`+p.pick("a", "b", "c", "d", "e")+`","chassis":"c`+p.pick("1", "2")+`"}}`,
			`{"op":"insert","table":"Q","row":{"n":`+p.pick("1", "2", `"x"`, "1.5", "9223372036854775808")+`}}`,
			`{"op":"update","table":"P","where":`+where()+`,"row":{"chassis":["set",[`+p.pick("", `"c1"`, `"c2"`)+`]]}}`,
			`{"op":"mutate","table":"P","where":`+where()+`,"mutations":[["tags","`+p.pick("insert", "delete", "+=")+`",["set",["x","y"]]]]}`,
			`{"op":"mutate","table":"Q","where":[],"mutations":[["n","`+p.pick("+=", "*=", "/=", "%=")+`",`+p.pick("1", "0", "3")+`]]}`,
			`{"op":"delete","table":"P","where":`+where()+`}`,
			`{"op":"delete","table":"Q","where":[["n","`+p.pick(">", "==", "?")+`",2]]}`,
			`{"op":"select","table":"P","where":`+where()+`}`,
			`{"op":"wait","table":"Q","timeout":`+p.pick("0", "5", "50", "-1")+`,"where":[],"columns":["n"],"until":"`+p.pick("==", "!=")+`","rows":[{"n":1}]}`,
			`{"op":"assert","lock":"`+p.pick("l", "k")+`"}`, `{"op":"comment","comment":"c"}`, `{"op":"abort"}`, `{"op":"none"}`, `7`,
		))
	}
	return `[` + p.pick(`"T"`, `"T"`, `"T"`, `"T"`, `"_Server"`, `"none"`) + `,` + strings.Join(ops, ",") + `]`
}

// shadows are clients that compose what monitors of one kind tell them.
type shadows []*shadow

type shadow struct {
	*client
	request string
	rows    map[string]map[string]any // of table P, by their ids
}

// shadow begins to monitor table P under several conditions.
func (m *member) shadow() (out shadows) {
	for _, where := range []string{`[]`, `[["chassis","==","c1"]]`, `[["tags","includes","x"],["name","!=","a"]]`} {
		s := &shadow{client: m.dial(), request: `["T","m",{"P":{"columns":["name","chassis","tags"],"where":` + where + `}}]`, rows: map[string]map[string]any{}}
		s.apply(s.call("monitor_cond", s.request))
		out = append(out, s)
	}
	return out
}

func (s *shadow) apply(updates string) {
	var u map[string]map[string]map[string]map[string]any
	if err := json.Unmarshal([]byte(updates), &u); err != nil {
		s.tb.Fatalf("%s: %v", updates, err)
	}
	for id, row := range u["P"] {
		for kind, columns := range row {
			switch _, there := s.rows[id]; {
			case (kind == "initial" || kind == "insert") && !there:
				s.rows[id] = map[string]any{"name": "", "chassis": "", "tags": elements(nil)}
				for c, v := range columns {
					s.rows[id][c] = v
				}
				s.rows[id]["tags"] = elements(columns["tags"])
			case kind == "delete" && there:
				delete(s.rows, id)
			case kind == "modify" && there:
				for c, v := range columns {
					if c == "tags" {
						v = symmetric(s.rows[id][c].([]string), elements(v))
					}
					s.rows[id][c] = v
				}
			default:
				s.tb.Fatalf("%s of a row that is there (%v): %s", kind, there, updates)
			}
		}
	}
}

// elements are those of a set of texts.
func elements(v any) []string {
	out := []string{}
	switch v := v.(type) {
	case string:
		out = append(out, v)
	case []any:
		for _, e := range v[1].([]any) {
			out = append(out, e.(string))
		}
	}
	return out
}

func symmetric(a, b []string) []string {
	out := slices.DeleteFunc(slices.Concat(a, b), func(e string) bool { return slices.Contains(a, e) && slices.Contains(b, e) })
	slices.Sort(out)
	return out
}

// check fails unless each has composed what a new monitor is told: guarantee 20.
func (all shadows) check(m *member) {
	for _, s := range all {
		// Its own transaction: what comes before the answer is all there was.
		s.write(ask("8", "transact", `["T",{"op":"insert","table":"P","row":{"name":"last`+fmt.Sprint(len(s.rows))+`"}},{"op":"delete","table":"P","where":[["name","==","a"]]}]`))
		for {
			var msg struct {
				Method string
				Params []json.RawMessage
			}
			if err := s.in.Decode(&msg); err != nil {
				s.tb.Fatal(err)
			}
			if msg.Method == "" {
				break
			}
			s.apply(string(msg.Params[1]))
		}
		fresh := &shadow{client: m.dial(), rows: map[string]map[string]any{}}
		fresh.apply(fresh.call("monitor_cond", s.request))
		got, _ := json.Marshal(normal(s.rows))
		want, _ := json.Marshal(normal(fresh.rows))
		if string(got) != string(want) {
			s.tb.Errorf("composed by %s:\n%s\nthere are\n%s", s.request, got, want)
		}
	}
}

// normal has an empty set of one text be as its default is.
func normal(rows map[string]map[string]any) map[string]map[string]any {
	for _, r := range rows {
		if v, ok := r["chassis"].([]any); ok && len(v[1].([]any)) == 0 {
			r["chassis"] = ""
		}
	}
	return rows
}
