package native

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

func (m *member) tables() incumbentv1connect.TableServiceClient {
	return incumbentv1connect.NewTableServiceClient(http.DefaultClient, m.url)
}

const petsSchema = `{"name":"Pets","version":"1.0.0","tables":{
"Pet":{"isRoot":true,"indexes":[["name"]],"columns":{"name":{"type":"string"},"age":{"type":"integer"},"toys":{"type":{"key":{"type":"uuid","refTable":"Toy"},"min":0,"max":"unlimited"}}}},
"Toy":{"columns":{"name":{"type":"string"}}}}}`

func newPets(t *testing.T, change ...func(*Config)) *member {
	m := newMember(t, change...)
	res, err := m.tables().DefineSchema(t.Context(), connect.NewRequest(&pb.DefineSchemaRequest{Schema: petsSchema}))
	if err != nil || !res.Msg.Changed {
		t.Fatal(res, err)
	}
	return m
}

func (m *member) transact(ops string, key *pb.Idempotency) (*pb.TransactResponse, error) {
	res, err := m.tables().Transact(m.tb.Context(), connect.NewRequest(&pb.TransactRequest{Database: "Pets", Operations: ops, Idempotency: key}))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

func (m *member) mustTransact(ops string) *pb.TransactResponse {
	m.tb.Helper()
	res, err := m.transact(ops, nil)
	if err != nil || res.Failed {
		m.tb.Fatal(ops, res, err)
	}
	return res
}

func (m *member) rows(r *pb.SelectRequest) []string {
	m.tb.Helper()
	r.Database = "Pets"
	var all []string
	for {
		res, err := m.tables().Select(m.tb.Context(), connect.NewRequest(r))
		if err != nil {
			m.tb.Fatal(err)
		}
		all = append(all, res.Msg.Rows...)
		if r.After = res.Msg.Next; r.After == "" {
			return all
		}
	}
}

func TestTables(t *testing.T) {
	m := newPets(t)
	m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"cat","age":3,"toys":["named-uuid","b"]}},{"op":"insert","table":"Toy","uuid-name":"b","row":{"name":"ball"}},{"op":"insert","table":"Pet","row":{"name":"dog","age":5}}]`)
	list, err := m.tables().ListDatabases(t.Context(), connect.NewRequest(&pb.ListDatabasesRequest{}))
	if err != nil || len(list.Msg.Databases) != 1 || list.Msg.Databases[0].Rows != 3 || list.Msg.Databases[0].Version != "1.0.0" {
		t.Errorf("databases: %v, %v", list, err)
	}
	schema, err := m.tables().GetSchema(t.Context(), connect.NewRequest(&pb.GetSchemaRequest{Database: "Pets"}))
	if err != nil || !strings.Contains(schema.Msg.Schema, `"refTable":"Toy"`) {
		t.Errorf("schema: %v, %v", schema, err)
	}
	for _, c := range []struct {
		where string
		want  []string
	}{
		{"", []string{`{"age":3,"name":"cat"}`, `{"age":5,"name":"dog"}`}},
		{`[["age",">",3]]`, []string{`{"age":5,"name":"dog"}`}},
		{`[["name","==","cat"],["age","<",4]]`, []string{`{"age":3,"name":"cat"}`}},
		{`[["name","==","fish"]]`, nil},
	} {
		got := m.rows(&pb.SelectRequest{Table: "Pet", Where: c.where, Columns: []string{"age", "name"}, Limit: 1})
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("where %s: %v, want %v", c.where, got, c.want)
		}
	}
	for what, r := range map[incumbent.Kind]*pb.SelectRequest{
		incumbent.NotFound: {Database: "Pets", Table: "Fish"},
		incumbent.Invalid:  {Database: "Pets", Table: "Pet", Where: `[["name"]]`},
	} {
		if _, err := m.tables().Select(t.Context(), connect.NewRequest(r)); kindOf(err) != what {
			t.Errorf("%v: %v", r, err)
		}
	}
}

func TestSchemas(t *testing.T) {
	m := newPets(t)
	define := func(schema string, convert bool) (bool, error) {
		res, err := m.tables().DefineSchema(t.Context(), connect.NewRequest(&pb.DefineSchemaRequest{Schema: schema, Convert: convert}))
		if err != nil {
			return false, err
		}
		return res.Msg.Changed, nil
	}
	if changed, err := define(petsSchema, false); changed || err != nil {
		t.Errorf("the same schema: %v, %v", changed, err)
	}
	m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"cat","age":3}}]`)
	later := strings.Replace(petsSchema, `"age":{"type":"integer"}`, `"age":{"type":"integer"},"tail":{"type":"boolean"}`, 1)
	if _, err := define(later, false); kindOf(err) != incumbent.Conflict {
		t.Errorf("another schema: %v", err)
	}
	if changed, err := define(later, true); !changed || err != nil {
		t.Errorf("converting: %v, %v", changed, err)
	}
	if got := m.rows(&pb.SelectRequest{Table: "Pet", Columns: []string{"age", "tail"}}); !slices.Equal(got, []string{`{"age":3,"tail":false}`}) {
		t.Errorf("rows of the converted database: %v", got)
	}
	if _, err := define(strings.Replace(later, `"age":{"type":"integer"}`, `"age":{"type":"string"}`, 1), true); kindOf(err) != incumbent.Conflict {
		t.Errorf("a schema that the rows do not fit: %v", err)
	}
	m.mustTransact(`[{"op":"update","table":"Pet","where":[],"row":{"name":"` + strings.Repeat("x", table.MaxRowBytes-1000) + `"}}]`)
	var wide strings.Builder
	for i := range 100 {
		fmt.Fprintf(&wide, `"c%d":{"type":{"key":"integer","min":0,"max":1}},`, i)
	}
	if _, err := define(strings.Replace(later, `"age"`, wide.String()+`"age"`, 1), true); kindOf(err) != incumbent.TooLarge {
		t.Errorf("a schema by which a row is too large: %v", err)
	}
	drop := &pb.DropDatabaseRequest{Database: "Pets"}
	if _, err := m.tables().DropDatabase(t.Context(), connect.NewRequest(drop)); err != nil {
		t.Error(err)
	}
	if _, err := m.tables().DropDatabase(t.Context(), connect.NewRequest(drop)); kindOf(err) != incumbent.NotFound {
		t.Errorf("dropping nothing: %v", err)
	}
}

// A transaction that is sent again with its key takes effect once, and one that failed
// does not seem to have succeeded.
func TestG25_ARepeatedTransactionOnTables(t *testing.T) {
	m := newPets(t)
	key := &pb.Idempotency{Key: []byte("k"), BaseIndex: uint64(m.group.View().Index())}
	const cat = `[{"op":"insert","table":"Pet","row":{"name":"cat"}},{"op":"update","table":"Pet","where":[],"row":{"age":7}}]`
	first, err := m.transact(cat, key)
	if err != nil || first.Failed || first.Repeated {
		t.Fatal(first, err)
	}
	again, err := m.transact(cat, key)
	if err != nil || !again.Repeated || again.Index != first.Index {
		t.Fatal(again, err)
	}
	if inserted, _, _ := strings.Cut(first.Results, "},"); !strings.HasPrefix(again.Results, inserted) {
		t.Errorf("it inserted %s, and when it is repeated %s", first.Results, again.Results)
	}
	if n := len(m.rows(&pb.SelectRequest{Table: "Pet"})); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	key.Key = []byte("fails")
	if res, err := m.transact(cat, key); err != nil || !res.Failed || !strings.Contains(res.Results, "constraint violation") {
		t.Fatal(res, err)
	}
	m.mustTransact(`[{"op":"delete","table":"Pet","where":[]}]`)
	if res, err := m.transact(cat, key); kindOf(err) != incumbent.Conflict {
		t.Errorf("one that failed, repeated: %v, %v", res, err)
	}
}

// A wait is tried again when its database changes, and its transaction then takes effect
// once.
func TestATransactionWaits(t *testing.T) {
	m := newPets(t)
	const ops = `[{"op":"wait","table":"Pet","where":[["name","==","dog"]],"columns":["age"],"until":"==","rows":[{"age":5}]},{"op":"insert","table":"Pet","row":{"name":"cat"}}]`
	type outcome struct {
		res *pb.TransactResponse
		err error
	}
	got := make(chan outcome, 1)
	go func() {
		res, err := m.transact(ops, &pb.Idempotency{Key: []byte("k"), BaseIndex: 1})
		got <- outcome{res, err}
	}()
	m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"dog","age":4}}]`)
	m.mustTransact(`[{"op":"update","table":"Pet","where":[["name","==","dog"]],"row":{"age":5}}]`)
	if o := <-got; o.err != nil || o.res.Failed {
		t.Errorf("a wait that holds later: %v, %v", o.res, o.err)
	}
	now := strings.Replace(ops, `"op":"wait"`, `"op":"wait","timeout":0`, 1)
	if res, err := m.transact(strings.Replace(now, `"age":5`, `"age":6`, 1), nil); err != nil || !res.Failed || !strings.Contains(res.Results, "timed out") {
		t.Errorf("a wait without time: %v, %v", res, err)
	}
}

// An assert holds while the lease is held by which the caller says to have the lock, and
// never again once another has been granted it.
func TestG02_G24_AnAssertIsFenced(t *testing.T) {
	m := newPets(t)
	leases := incumbentv1connect.NewLeaseServiceClient(http.DefaultClient, m.url)
	name := &pb.LeaseName{Model: "ovsdb", Name: "northd"}
	claim := func(holder string) uint64 {
		res, err := leases.Claim(t.Context(), connect.NewRequest(&pb.ClaimRequest{Name: name, Holder: holder, TtlMs: 60_000}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg.Lease.Token
	}
	transact := func(ops string, locks ...*pb.TableLock) string {
		res, err := m.tables().Transact(t.Context(), connect.NewRequest(&pb.TransactRequest{Database: "Pets", Operations: ops, Locks: locks}))
		if err != nil {
			return kindOf(err).String()
		}
		if res.Msg.Failed {
			return "failed"
		}
		return "done"
	}
	const ops = `[{"op":"assert","lock":"northd"},{"op":"insert","table":"Pet","row":{"name":"cat"}},{"op":"delete","table":"Pet","where":[["name","==","cat"]]}]`
	first := claim("a")
	held := &pb.TableLock{Lock: "northd", Lease: name, Token: first}
	for what, got := range map[string]string{
		"done":    transact(ops, held),
		"failed":  transact(ops) + transact(ops, &pb.TableLock{Lock: "other", Lease: name, Token: first})[6:],
		"invalid": transact(ops, &pb.TableLock{Lock: "northd", Lease: name}),
	} {
		if got != what {
			t.Errorf("an assert: %s, want %s", got, what)
		}
	}
	if _, err := leases.Release(t.Context(), connect.NewRequest(&pb.ReleaseRequest{Name: name, Holder: "a", Token: first})); err != nil {
		t.Fatal(err)
	}
	if got := transact(ops, held); got != "failed" {
		t.Errorf("behind a release: %s", got)
	}
	second := claim("b")
	if got := transact(ops, held); got != "failed" {
		t.Errorf("by another's lease: %s", got)
	}
	if got := transact(ops, &pb.TableLock{Lock: "northd", Lease: name, Token: second}); got != "done" {
		t.Errorf("by its holder: %s", got)
	}
}

func TestG15_WatchOfTables(t *testing.T) {
	m := newPets(t)
	m.mustTransact(`[{"op":"insert","table":"Pet","row":{"name":"cat","age":3}}]`)
	follow := func(r *pb.WatchTablesRequest) func() *pb.WatchTablesResponse {
		r.Database = "Pets"
		s, err := m.tables().Watch(t.Context(), connect.NewRequest(r))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return func() *pb.WatchTablesResponse {
			for s.Receive() {
				if r := s.Msg(); len(r.Events) > 0 {
					return r
				}
			}
			t.Fatal(s.Err())
			return nil
		}
	}
	all, toys := follow(&pb.WatchTablesRequest{}), follow(&pb.WatchTablesRequest{Tables: []string{"Toy"}})
	begun := all()
	if len(begun.Events) != 2 || !begun.Snapshot || begun.Events[0].Schema == "" || !strings.Contains(begun.Events[1].Rows[0].Row, `"name":"cat"`) {
		t.Fatalf("the beginning: %v", begun)
	}
	if b := toys(); len(b.Events) != 1 {
		t.Fatalf("the beginning of another table: %v", b)
	}
	m.mustTransact(`[{"op":"update","table":"Pet","where":[],"row":{"age":4}}]`)
	m.mustTransact(`[{"op":"mutate","table":"Pet","where":[],"mutations":[["toys","insert",["named-uuid","b"]]]},{"op":"insert","table":"Toy","uuid-name":"b","row":{"name":"ball"}}]`)
	r := all().Events[0].Rows[0]
	if !strings.Contains(r.Row, `"age":4`) || !strings.Contains(r.Previous, `"age":3`) || r.Table != "Pet" {
		t.Errorf("a change: %v", r)
	}
	if e := toys().Events[0]; len(e.Rows) != 1 || e.Rows[0].Table != "Toy" || e.Rows[0].Previous != "" {
		t.Errorf("a change of the other table: %v", e)
	}
	if e := follow(&pb.WatchTablesRequest{AfterIndex: begun.ProgressIndex})().Events[0]; !strings.Contains(e.Rows[0].Row, `"age":4`) {
		t.Errorf("resumed: %v", e)
	}
}

// Zeroes are a uuid as any other: a row that has them is read and told of.
func TestARowOfZeroes(t *testing.T) {
	m := newPets(t)
	id := strings.Repeat("0", 8) + strings.Repeat("-0000", 3) + "-" + strings.Repeat("0", 12)
	m.mustTransact(`[{"op":"insert","table":"Pet","uuid":"` + id + `","row":{"name":"cat"}},{"op":"insert","table":"Pet","row":{"name":"dog"}}]`)
	for _, where := range []string{"", `[["name","!=","x"]]`} {
		if got := m.rows(&pb.SelectRequest{Table: "Pet", Where: where, Limit: 1}); len(got) != 2 || !strings.Contains(got[0], id) {
			t.Errorf("rows where %q: %q", where, got)
		}
	}
	s, err := m.tables().Watch(t.Context(), connect.NewRequest(&pb.WatchTablesRequest{Database: "Pets"}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	told := 0
	for told < 2 && s.Receive() {
		for _, e := range s.Msg().Events {
			told += len(e.Rows)
		}
		if !s.Msg().More {
			break
		}
	}
	if told != 2 {
		t.Errorf("a watch tells of %d rows, want 2: %v", told, s.Err())
	}
}

// beginLoad begins a load of Pets, and returns what takes its steps.
func (m *member) beginLoad() (load func(*pb.LoadRequest) (*pb.LoadResponse, error), begun *pb.LoadResponse) {
	m.tb.Helper()
	load = func(r *pb.LoadRequest) (*pb.LoadResponse, error) {
		r.Database = "Pets"
		res, err := m.tables().Load(m.tb.Context(), connect.NewRequest(r))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	begun, err := load(&pb.LoadRequest{Step: &pb.LoadRequest_Begin{Begin: &pb.LoadBegin{Schema: petsSchema}}})
	if err != nil {
		m.tb.Fatal(err)
	}
	return load, begun
}

// What is loaded is seen at once and whole, with its uuids, or not at all.
func TestLoadTables(t *testing.T) {
	m := newMember(t)
	load, begun := m.beginLoad()
	rows := func(text string) (*pb.LoadResponse, error) {
		return load(&pb.LoadRequest{Load: begun.Index, Step: &pb.LoadRequest_Rows{Rows: text}})
	}
	finish := func() error {
		_, err := load(&pb.LoadRequest{Load: begun.Index, Step: &pb.LoadRequest_Finish{Finish: &pb.LoadFinish{}}})
		return err
	}
	const cat = `{"Pet":{"00000000-0000-0000-0000-000000000001":{"name":"cat","toys":["uuid","00000000-0000-0000-0000-000000000002"]}}}`
	for range 2 {
		if res, err := rows(cat); err != nil || res.Rows != 1 {
			t.Fatal(res, err)
		}
	}
	if err := finish(); kindOf(err) != incumbent.Invalid {
		t.Errorf("finished without a row that is referred to: %v", err)
	}
	if _, err := m.tables().GetSchema(t.Context(), connect.NewRequest(&pb.GetSchemaRequest{Database: "Pets"})); kindOf(err) != incumbent.NotFound {
		t.Errorf("it is seen already: %v", err)
	}
	if _, err := rows(`{"Toy":{"x":{}}}`); kindOf(err) != incumbent.Invalid {
		t.Errorf("a row without a uuid: %v", err)
	}
	if _, err := rows(`{"Toy":{"00000000-0000-0000-0000-000000000002":{"name":"ball"}}}`); err != nil {
		t.Fatal(err)
	}
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	if got := m.rows(&pb.SelectRequest{Table: "Toy", Columns: []string{"_uuid", "name"}}); !slices.Equal(got, []string{`{"_uuid":["uuid","00000000-0000-0000-0000-000000000002"],"name":"ball"}`}) {
		t.Errorf("rows: %v", got)
	}
}

// Rows of a load are parsed up to what a command may have, and no further: what comes behind
// is not looked at, and no more is kept of them.
func TestG39_RowsOfALoadAreBoundedWhileTheyAreParsed(t *testing.T) {
	m := newMember(t)
	load, begun := m.beginLoad()
	for n, want := range map[int]incumbent.Kind{10: incumbent.Invalid, table.MaxLoadRows + 1: incumbent.TooLarge} {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, `"00000000-0000-0000-0000-%012d":{},`, i)
		}
		_, err := load(&pb.LoadRequest{Load: begun.Index, Step: &pb.LoadRequest_Rows{Rows: `{"Toy":{` + text.String() + `"none":{}}}`}})
		if kindOf(err) != want {
			t.Errorf("%d rows before one without a uuid: %v, want %v", n, err, want)
		}
	}

	var list loadRows
	wide := &table.Row{Columns: make([]ovs.Datum, ovs.MaxColumns)}
	var err error
	for err == nil && len(list.rows) <= parts.MaxBytes/ovs.MaxColumns {
		err = list.add(0, wide)
	}
	if incumbent.KindOf(err) != incumbent.TooLarge {
		t.Errorf("%d rows, more bytes than a command may have: %v", len(list.rows), err)
	}
}

// Roles that policies give bind by this door, too: as whom its certificate or credential
// says, a caller changes what the role allows, and nothing by it who has shown neither.
func TestG12_RolesOfPoliciesBind(t *testing.T) {
	m := newMember(t)
	schema := `{"name":"Pets","version":"1.0.0","tables":{
"RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},"permissions":{"type":{"key":"string","value":{"type":"uuid","refTable":"RBAC_Permission"},"min":0,"max":"unlimited"}}}},
"RBAC_Permission":{"isRoot":true,"columns":{"authorization":{"type":"string"},"insert_delete":{"type":"boolean"},"update":{"type":"string"}}},
"Pet":{"isRoot":true,"columns":{"name":{"type":"string"},"age":{"type":"integer"},"owner":{"type":"string"}}}}}`
	if _, err := m.tables().DefineSchema(t.Context(), connect.NewRequest(&pb.DefineSchemaRequest{Schema: schema})); err != nil {
		t.Fatal(err)
	}
	m.mustTransact(`[{"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{"authorization":"owner","update":"age"}},
{"op":"insert","table":"RBAC_Role","row":{"name":"keeper","permissions":["map",[["Pet",["named-uuid","p"]]]]}},
{"op":"insert","table":"Pet","row":{"name":"cat","owner":"a"}},{"op":"insert","table":"Pet","row":{"name":"dog","owner":"b"}}]`)
	m.let("agent:*", auth.Rule{State: auth.Tables, Namespace: "default", Prefix: "Pets", Verbs: auth.See | auth.WriteInRole, Role: "keeper"})
	const (
		own    = `[{"op":"update","table":"Pet","where":[["owner","==","a"]],"row":{"age":1}}]`
		others = `[{"op":"update","table":"Pet","where":[["owner","==","b"]],"row":{"age":1}}]`
		name   = `[{"op":"update","table":"Pet","where":[["owner","==","a"]],"row":{"name":"x"}}]`
		insert = `[{"op":"insert","table":"Pet","row":{"owner":"a"}}]`
		look   = `[{"op":"select","table":"Pet","where":[["owner","==","b"]],"columns":["age"]}]`
	)
	certified, unproven := agentA(), agentA()
	certified.Via, unproven.Via = auth.Certificate, auth.Unproven
	for i, tt := range []struct {
		who auth.Principal
		ops string
		may bool
	}{
		{agentA(), own, true},
		{certified, own, true},
		{unproven, own, false},
		{agentA(), others, false},
		{agentA(), name, false},
		{agentA(), insert, false},
		{agentA(), look, true},
		{unproven, look, true},
	} {
		m.as(tt.who)
		for _, key := range []*pb.Idempotency{nil, {Key: []byte{byte(i)}, BaseIndex: uint64(m.group.View().Index())}} {
			res, err := m.transact(tt.ops, key)
			if err != nil || res.Failed == tt.may || res.Failed && !strings.Contains(res.Results, "permission error") {
				t.Errorf("%v by its %v, %s: %v, %v", tt.who, tt.who.Via, tt.ops, res, err)
			}
		}
	}
}
