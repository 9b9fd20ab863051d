package table

import (
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// Tables of a database that say what clients with a role may change, as the schema of
// OVN's southbound database has them. A database without the first restricts nobody.
const (
	roleTable       = "RBAC_Role"
	permissionTable = "RBAC_Permission"
)

// RootRole is the role that everything is allowed to.
const RootRole = ""

// restricted is a transaction of a client that has a role: what it may change the rows
// of the database say, as the operations before have left them.
type restricted struct {
	client string
	within [][]string // roles: an operation has to be within one of each of these
	byRow  bool       // rows are judged, one that is inserted too, and no columns without any: see rowSchema
}

// rowSchema is the [core.SchemaVersion] from which who inserts a row within a role has to
// be authorized for it, as who deletes one, and who changes no row may name any column.
const rowSchema = 12

// restrictedIn is how a transaction of a client is restricted in a database, by the role
// of where it connects, if the database has roles, and by those that policies give it, in
// any case, by the rules of a schema version that is active; nil: it is not.
func restrictedIn(s *ovs.Schema, role string, roles []string, client string, active uint32) *restricted {
	x := &restricted{client: client, byRow: active >= rowSchema}
	if t, _ := s.Table(roleTable); t != nil && role != RootRole {
		x.within = append(x.within, []string{role})
	}
	if len(roles) > 0 {
		x.within = append(x.within, roles)
	}
	if len(x.within) == 0 {
		return nil
	}
	return x
}

// within is the error of an operation on a table that the client may not do: one that
// none of its roles, or of those of policies, allows by its row with permissions (nil:
// there is none).
func (p *play) within(what string, table int, allows func(permission *Row) bool) *ovs.Error {
	if p.as == nil {
		return nil
	}
	for _, roles := range p.as.within {
		if !slices.ContainsFunc(roles, func(role string) bool { return allows(p.permission(role, table)) }) {
			return prohibited(roles[0], p.as.client, what+` table "`+p.schema.Tables[table].Name+`".`)
		}
	}
	return nil
}

// ConvertDenied is the error of a client with a role that wants to give a database
// another schema.
func ConvertDenied(role, client, database string) *ovs.Error {
	return prohibited(role, client, `"convert" of database `+database+` (only the root role may convert databases)`)
}

func prohibited(role, client, what string) *ovs.Error {
	if client == "" {
		client = "(null)" // as other servers name who has shown no certificate
	}
	return ovs.Errorf(ovs.PermissionError, "%s", `RBAC rules for client "`+client+`" role "`+role+`" prohibit `+what)
}

// permission is the row that says what the client may do to a table in a role; nil:
// nothing.
func (p *play) permission(in string, table int) *Row {
	t, roles := p.schema.Table(roleTable)
	if t == nil || p.as.client == "" {
		return nil
	}
	name, permissions := typed(t, "name", isText), typed(t, "permissions", isReferences)
	granted, to := p.schema.Table(permissionTable)
	if name == nil || permissions == nil || granted == nil {
		return nil
	}
	var role *Row
	p.relations[roles].rows.Scan(func(r *Row) bool {
		if texts := r.Columns[name.Index()].Keys; len(texts) == 1 && texts[0].Text() == in {
			role = r
		}
		return role == nil
	})
	if role == nil {
		return nil
	}
	d := role.Columns[permissions.Index()]
	i, found := d.Find(ovs.StringAtom(p.schema.Tables[table].Name))
	if !found {
		return nil
	}
	return p.row(place{to, d.Values[i].UUID()})
}

// texts are those of a column of a row with permissions.
func (p *play) texts(permission *Row, column string) []ovs.Atom {
	t, _ := p.schema.Table(permissionTable)
	c := typed(t, column, isTexts)
	if c == nil {
		return nil
	}
	return permission.Columns[c.Index()].Keys
}

// mayInsertDelete reports whether a permission allows to make rows, and to delete them, of
// those that the client is authorized for.
func (p *play) mayInsertDelete(permission *Row) bool {
	if permission == nil {
		return false // and perhaps no such table
	}
	t, _ := p.schema.Table(permissionTable)
	c := typed(t, "insert_delete", isBoolean)
	if c == nil {
		return false
	}
	is := permission.Columns[c.Index()].Keys
	return len(is) == 1 && is[0].Bool()
}

// authorized reports whether the client is that of a row: a column of it, or a key of a
// column with a map, has its name. An empty name of a column means all rows.
func (p *play) authorized(permission *Row, table int, r *Row) bool {
	return slices.ContainsFunc(p.texts(permission, "authorization"), func(a ovs.Atom) bool {
		return a.Text() == "" || p.names(p.schema.Tables[table], r, a.Text())
	})
}

// names reports whether a column of a row, or COLUMN:KEY of a map, is the client's name.
func (p *play) names(t *ovs.Table, r *Row, where string) bool {
	if !strings.Contains(where, ":") {
		c := typed(t, where, isText)
		return c != nil && slices.Contains(r.Columns[c.Index()].Keys, ovs.StringAtom(p.as.client))
	}
	parts := strings.FieldsFunc(where, func(r rune) bool { return r == ':' })
	if len(parts) < 2 {
		return false
	}
	c := typed(t, parts[0], isTextMap)
	return c != nil && r.Columns[c.Index()].Has(ovs.StringAtom(parts[1]), ovs.StringAtom(p.as.client))
}

// mayInsert is the error of a new row that the client may not make.
func (p *play) mayInsert(table int, n *Row) *ovs.Error {
	return p.within("row insertion into", table, func(permission *Row) bool {
		return p.mayInsertDelete(permission) && (!p.as.byRow || p.authorized(permission, table, n))
	})
}

// mayDelete is the error of rows that the client may not delete.
func (p *play) mayDelete(table int, rows []*Row) *ovs.Error {
	return p.within("row deletion from", table, func(permission *Row) bool {
		return p.mayInsertDelete(permission) && p.authorizedAll(permission, table, rows)
	})
}

// mayChange is the error of columns that the client may not change in rows, if there are
// any, or of rows that are not its own. The columns are those of the n changes of the operation.
func (p *play) mayChange(what string, table int, rows []*Row, n int, column func(i int) int) *ovs.Error {
	return p.within(what, table, func(permission *Row) bool {
		if permission == nil {
			return false
		}
		if p.as.byRow && len(rows) == 0 {
			return true
		}
		t, allowed := p.schema.Tables[table], p.texts(permission, "update")
		for i := range n {
			if !slices.Contains(allowed, ovs.StringAtom(t.At(column(i)).Name)) {
				return false
			}
		}
		return p.authorizedAll(permission, table, rows)
	})
}

func (p *play) authorizedAll(permission *Row, table int, rows []*Row) bool {
	return !slices.ContainsFunc(rows, func(r *Row) bool { return !p.authorized(permission, table, r) })
}

// typed is a column of a table if it is of a type; nil: it is not.
func typed(t *ovs.Table, column string, is func(*ovs.Type) bool) *ovs.Column {
	c := t.Column(column)
	if c == nil || !is(&c.Type) {
		return nil
	}
	return c
}

func isText(t *ovs.Type) bool {
	return t.Key.Kind == ovs.String && t.Value.Kind == ovs.Void && t.Max == 1
}
func isTexts(t *ovs.Type) bool   { return t.Key.Kind == ovs.String && t.Value.Kind == ovs.Void }
func isBoolean(t *ovs.Type) bool { return t.Key.Kind == ovs.Boolean && t.IsScalar() }
func isTextMap(t *ovs.Type) bool { return t.Key.Kind == ovs.String && t.Value.Kind == ovs.String }
func isReferences(t *ovs.Type) bool {
	return t.Key.Kind == ovs.String && t.Value.Kind == ovs.UUIDKind
}
