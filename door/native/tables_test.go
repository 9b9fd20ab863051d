package native

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
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
	drop := &pb.DropDatabaseRequest{Database: "Pets"}
	if _, err := m.tables().DropDatabase(t.Context(), connect.NewRequest(drop)); err != nil {
		t.Error(err)
	}
	if _, err := m.tables().DropDatabase(t.Context(), connect.NewRequest(drop)); kindOf(err) != incumbent.NotFound {
		t.Errorf("dropping nothing: %v", err)
	}
}
