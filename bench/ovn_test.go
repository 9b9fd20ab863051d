package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

func TestEndOfAnObjectInPieces(t *testing.T) {
	for _, object := range []string{
		`{}`, `{"a":{"b":[{}]}}`, `{"a":"}{"}`, `{"a":"\"}"}`, `{"a":"\\"}`, `{"long":"` + strings.Repeat("{", 100) + `\\\"}"}`,
	} {
		for cut := range len(object) + 1 {
			var e jsonEnd
			whole := object + `{"next":1}`
			end := e.find([]byte(whole[:cut]))
			if end < 0 {
				if rest := e.find([]byte(whole[cut:])); rest >= 0 {
					end = cut + rest
				}
			}
			if end != len(object) {
				t.Fatalf("%s, cut at %d: ends at %d, want %d", object, cut, end, len(object))
			}
		}
	}
}

// ovnServer answers what a test says, request by request.
func ovnServer(t *testing.T, answers ...string) *ovnConn {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close(); far.Close() })
	go func() {
		requests := json.NewDecoder(far)
		for _, a := range answers {
			var asked map[string]json.RawMessage
			if requests.Decode(&asked) != nil {
				return
			}
			for part := range strings.SplitSeq(a, "|") { // a write of its own each
				if _, err := fmt.Fprint(far, part); err != nil {
					return
				}
			}
		}
	}()
	return &ovnConn{wireConn: newWireConn(near, ovnHead)}
}

func TestAnswersOfADatabase(t *testing.T) {
	c := ovnServer(t,
		`{"id":null,"method":"update2","params":[null,{}]}{"method":"echo","id":"echo","params":[]}`,
		// what it said to the echo, in the order of names that the original writes
		`{"error":null,"id":1,"result":[{"count":|1}]}`,
		`{"id":2,"error":{"error":"unknown database"},"result":null}`,
		`{"id":3,"error":null,"result":[{"error":"timed out","details":"x"}]}`,
		`{"id":4,"error":{"details":"x","error":"resources exhausted"},"result":null}`,
		`{"id":5,"error":null,"result":[{"details":"x","error":"resources exhausted"},null]}`,
		`{"id":6,"error":null,"result":[true,"0b5c6f1e-0000-0000-0000-000000000001",{"Port_Binding":{"a":{},"b":{}}}]}`,
		`{"id":8,"error":null,"result":[]}`,
	)
	results, err := c.transact(`{}`)
	if err != nil || len(results) != 1 || results[0].Count != 1 || c.updates != 1 {
		t.Fatalf("%+v, %v, after %d updates", results, err, c.updates)
	}
	for _, want := range []string{"unknown database", "timed out: x"} {
		_, err := c.transact(`{}`)
		if _, refused := errors.AsType[refusedCall](err); !refused || incumbent.KindOf(err) == incumbent.Overloaded {
			t.Errorf("no refusal that says %q", want)
		}
	}
	for range 2 { // of servers that say so in either form
		if _, err := c.transact(`{}`); incumbent.KindOf(err) != incumbent.Overloaded {
			t.Errorf("refused for the load: %v", err)
		}
	}
	seen, err := c.monitor(`{}`, "", 0)
	if err != nil || !seen.found || seen.last != "0b5c6f1e-0000-0000-0000-000000000001" {
		t.Fatalf("%+v, %v", seen, err)
	}
	if n, err := seen.rows(); n != 2 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	if _, err := c.transact(`{}`); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("the answer to another request: %v", err)
	}
}

func TestScenariosOfDatabasesRefuse(t *testing.T) {
	for _, c := range []struct{ scenario, key, value, want string }{
		{"ovn-ports", "ports.count", "0", "ports.count must be"},
		{"ovn-ports", "ports.count", "200", "must not be below closed.workers"},
		{"ovn-ports", "ports.at", "nowhere", "is neither leader nor follower"},
		{"ovn-ports", "ports.kill", "1h", "before closed.duration is over"},
		{"ovn-ports", "closed.streams", "3", "one request under way"},
		{"ovn-idle", "ports", "null", "which needs them"},
		{"kv-put", "ports", "{count: 1}", "are for the door ovsdb"},
		{"ovn-sizes", "door", "native", "play sizes is for the door ovsdb"},
		{"ovn-sizes", "ports.sizes", "null", "ports.sizes is for the play sizes, which needs it"},
		{"ovn-sizes", "ports.sizes.tables", "2", "tables must be 3 to 4000"},
		{"ovn-sizes", "ports.sizes.row_bytes", "1500001", "row_bytes 1 to 1500000"},
		{"ovn-resync", "door", "native", "play resync is for the door ovsdb"},
	} {
		if _, err := Load(c.scenario, map[string]string{c.key: c.value}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s=%s: %v, want %q", c.scenario, c.key, c.value, err, c.want)
		}
	}
	for _, o := range []Options{{Scenario: "ovn-ports", Peer: "consul"}, {Scenario: "kv-put", Peer: "ovsdb"}, {Scenario: "ovn-ports", Peer: "ovsdb"}} {
		if _, err := Run(t.Context(), o); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s on %s: %v", o.Scenario, o.Peer, err)
		}
	}
}

// Of an answer of a known size only the head and the end are looked at.
func TestAnswersAreSkimmed(t *testing.T) {
	const id = "0b5c6f1e-0000-0000-0000-000000000001"
	rows := strings.Repeat("}", skimAbove) // no look for the end would pass them
	all := `{"id":1,"result":[false,"` + id + `",` + rows + `]}`
	c := ovnServer(t, `{"id":"echo","method":"echo","params":[]}`, `{"id":null,"method":"update3","params":[]}`+all, `{"id":2,"result":[true,"`+id+`",{}]}`)
	seen, err := c.monitor(`{}`, "", int64(len(all)))
	if err != nil || seen.found || seen.last != id || c.updates != 1 {
		t.Fatalf("%+v, %v, after %d updates", seen, err, c.updates)
	}
	if seen, err = c.monitor(`{}`, id, int64(len(all))); err != nil || !seen.found {
		t.Errorf("who is told only what changed: %+v, %v", seen, err)
	}
	c = ovnServer(t, all+" ")
	if _, err := c.monitor(`{}`, "", int64(len(all)+1)); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("an answer of another size: %v", err)
	}
}

func TestRowsOfAMonitor(t *testing.T) {
	type port struct {
		Name string `json:"name"`
	}
	const first = `{"id":1,"error":null,"result":[false,"0",{"Port":{"u1":{"initial":{"name":"a"}}}}]}`
	for update, want := range map[string]string{
		`{"id":null,"method":"update3","params":[null,"0",{"Port":{"u2":{"insert":{"name":"b"}},"u3":{"delete":null}},"Other":{"u4":{"insert":{}}}}]}`: "u1:a u2:b",
		`{"id":null,"method":"update3","params":[null,"0",{"Port":{"u1":{"modify":{"name":"c"}}}}]}`:                                                   "u1:c",
		`{"id":null,"method":"update3","params":[1,2]}`:                                                                                                "u1:a corrupt",
		`{"id":null,"method":"update3","params":[null,"0",[1]]}`:                                                                                       "u1:a corrupt",
		`{"id":null,"method":"update3","params":{}}`:                                                                                                   "u1:a corrupt",
	} {
		c := ovnServer(t, first+update)
		rows := map[string]string{}
		err := follow(c, "Port", `{}`, func(uuid string, row port) { rows[uuid] = row.Name })
		if err == nil {
			err = c.hear(func() bool { return len(rows) > 1 || rows["u1"] == "c" })
		}
		var got []string
		for _, uuid := range slices.Sorted(maps.Keys(rows)) {
			got = append(got, uuid+":"+rows[uuid])
		}
		if err != nil {
			got = append(got, incumbent.KindOf(err).String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: rows are %v (%v), want %s", update, got, err, want)
		}
	}
}

// A client whose monitor is refused asks again, and the refusal stands in the row of the
// monitors: not among the refusals of what it does afterwards.
func TestRefusedMonitorsAreCounted(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	answers := []string{
		`{"id":1,"error":{"error":"unknown database"},"result":null}`,
		`{"id":1,"error":null,"result":[false,"0b5c6f1e-0000-0000-0000-000000000001",{}]}`,
	}
	go func() {
		for _, a := range answers {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var asked map[string]json.RawMessage
			if json.NewDecoder(c).Decode(&asked) == nil {
				_, _ = fmt.Fprint(c, a) // who does not get it says so
			}
			defer c.Close()
		}
	}()
	w := &ovnWorld{
		run:       &run{sc: &Scenario{Ports: &Ports{At: atAll, All: true}}, rec: NewRecorder(), begun: time.Now()},
		addresses: []string{ln.Addr().String()}, chassis: []string{"c"},
	}
	c, err := w.begin(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	c.close()
	w.rec.op("bind").failed(1, 1)
	w.rec.reset()
	if s := w.rec.op("monitor").summary(); s.Count != 1 || s.Errors != 1 {
		t.Errorf("the row of the monitors is %+v", s)
	}
	if s := w.rec.op("bind").summary(); s.Errors != 0 {
		t.Errorf("the warm-up is remembered: %+v", s)
	}
}
