package main

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/core/table/ovs/dbfile"
)

// remotePatience is how long a server that is imported from may take to answer.
const remotePatience = 5 * time.Minute

// remote is a connection to a server of OVSDB's protocol.
type remote struct {
	conn net.Conn
	in   *json.Decoder
	last int // id of the last request
}

// remoteMessage is an answer, or a request of the server's.
type remoteMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error"`
}

// ask sends a request and returns its answer.
func (r *remote) ask(method string, params ...any) (ovs.Value, error) {
	r.last++
	if params == nil {
		params = []any{} // null is refused
	}
	if err := json.NewEncoder(r.conn).Encode(map[string]any{"id": r.last, "method": method, "params": params}); err != nil {
		return ovs.Value{}, incumbent.Errorf(incumbent.Unavailable, "%s: %w", method, err)
	}
	for {
		var m remoteMessage
		if err := r.in.Decode(&m); err != nil {
			return ovs.Value{}, incumbent.Errorf(incumbent.Unavailable, "%s: %w", method, err)
		}
		switch {
		case m.Method == "echo" && len(m.ID) > 0 && string(m.ID) != "null":
			if err := json.NewEncoder(r.conn).Encode(map[string]any{"id": m.ID, "result": m.Params, "error": nil}); err != nil {
				return ovs.Value{}, incumbent.Errorf(incumbent.Unavailable, "%s: %w", method, err)
			}
			continue
		case m.Method != "": // a change behind what was read
			continue
		case len(m.Error) > 0 && string(m.Error) != "null":
			return ovs.Value{}, incumbent.Errorf(incumbent.Invalid, "the server answered to %s: %s", method, m.Error)
		}
		v, bad := ovs.ParseJSON(string(m.Result))
		if bad != nil {
			return v, incumbent.Errorf(incumbent.Invalid, "the server answered to %s: %w", method, bad)
		}
		return v, nil
	}
}

// readServer reads a database from a server that runs, as it is at one moment.
func readServer(ctx context.Context, network, address, database string) (*dbfile.Content, error) {
	conn, err := (&net.Dialer{Timeout: remotePatience}).DialContext(ctx, network, address)
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(remotePatience)); err != nil {
		return nil, err
	}
	r := &remote{conn: conn, in: json.NewDecoder(conn)}
	if database == "" {
		if database, err = r.only(); err != nil {
			return nil, err
		}
	}
	text, err := r.ask("get_schema", database)
	if err != nil {
		return nil, err
	}
	schema, bad := ovs.SchemaOf(text)
	if bad != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "the server's schema: %w", bad)
	}
	requests := map[string]any{}
	for _, t := range schema.Tables {
		columns := []string{}
		for _, c := range t.Columns {
			columns = append(columns, c.Name)
		}
		requests[t.Name] = map[string]any{"columns": columns}
	}
	rows, err := r.ask("monitor", database, nil, requests)
	if err != nil {
		return nil, err
	}
	all := dbfile.New(schema)
	return all, update(all, rows)
}

// only is the name of the only database of a server.
func (r *remote) only() (string, error) {
	list, err := r.ask("list_dbs")
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range list.Elements() {
		if !strings.HasPrefix(e.Text(), "_") { // of the server itself
			names = append(names, e.Text())
		}
	}
	slices.Sort(names)
	if len(names) != 1 {
		return "", usageError{"the server has databases " + strings.Join(names, ", ") + ": say which"}
	}
	return names[0], nil
}

// update takes the rows of what a monitor tells first.
func update(c *dbfile.Content, tables ovs.Value) error {
	for i := range tables.Members() {
		name, rows := tables.MemberAt(i)
		of, at := c.Schema.Table(name)
		if of == nil {
			return incumbent.Errorf(incumbent.Invalid, "the server tells of table %s, which its schema has not", name)
		}
		for j := range rows.Members() {
			id, change := rows.MemberAt(j)
			row, _ := change.Member("new")
			if err := c.ApplyRow(of, at, id, row, false); err != nil {
				return incumbent.Errorf(incumbent.Invalid, "row %s of table %s: %w", id, name, err)
			}
		}
	}
	return nil
}
