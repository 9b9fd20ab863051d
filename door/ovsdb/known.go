package ovsdb

import (
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// knowing are the actions of which one, allowed on a database, lets its caller know that
// it is there, and its schema: who may do nothing to it is told neither.
var knowing = [...]auth.Action{auth.TableRead, auth.TableWatch, auth.TableWrite, auth.TableWriteInRole, auth.TableDefine}

// known is which databases somebody may know of. The zero value: all.
type known struct {
	key    string // of those who may know of the same; "": all
	rights *auth.Rights
	door   *Door
}

// knows is which databases the caller may know of by the policies of now.
func (w *caller) knows() known {
	rights, _ := w.rights()
	var key strings.Builder
	for _, a := range knowing {
		s := rights.Sight(a)
		if s.All() {
			return known{}
		}
		k := s.Key()
		key.WriteString(strconv.Itoa(len(k)) + ":" + k)
	}
	return known{key.String(), rights, w.door}
}

func (k *known) all() bool { return k.key == "" }

// shows reports whether a row of the database about the server may be shown.
func (k *known) shows(r *ovs.Row) bool {
	if k.all() {
		return true
	}
	s := k.door.feeds.server
	name := r.Columns[s.column("name")].Keys[0].Text()
	return name == serverName || knowsOf(k.rights, k.door.named(name).Name)
}

// knowsOf reports whether the rights let somebody know of a database.
func knowsOf(g *auth.Rights, n incumbent.Name) bool {
	for _, a := range knowing {
		if g.Sight(a).Sees(n) {
			return true
		}
	}
	return false
}

// limit has wishes show what the monitor's client may know of. On the feed.
func (m *monitor) limit(wishes []wish) {
	if m.feed.name != serverName {
		return
	}
	k := m.conn.who.knows()
	for i := range wishes {
		wishes[i].known = k
	}
}
