package core

import "github.com/incumbent-dev/incumbent"

// Content is how many records of one kind a state has.
type Content struct {
	Name    string `json:"name"` // sessions, results, members, or a family's
	Records int    `json:"records"`
}

// Contents counts the records of a state, as they stand in its snapshot.
func (v *View) Contents() []Content {
	n := v.shared.sizes()
	list := []Content{
		{"sessions", int(n.sessions)}, {"results", int(n.kept)}, {"members", int(n.members)},
	}
	for i, f := range v.families {
		list = append(list, Content{v.kinds[i].Name(), f.Records()})
	}
	return list
}

// Namespaced is the view of a family whose records belong to namespaces.
type Namespaced interface {
	// Namespace returns the records of one namespace, and calls session with each
	// session that one of them names.
	Namespace(namespace string, session func(incumbent.SessionID)) FamilyView
}

// Namespace returns the part of a state that belongs to one namespace: what families
// have in it, and the sessions that are named by a record there, no others. Index and
// members are the state's. No result of a keyed command is part of it: a key that was
// chosen before counts as forgotten. A family without namespaces is left out.
func (v *View) Namespace(namespace string) *View {
	t := newTables()
	t.index, t.keysFloor = v.index, v.index
	t.members, t.goneMembers = v.members, v.goneMembers
	session := func(id incumbent.SessionID) {
		if s := v.session(id); s != nil {
			t.putSession(s)
		}
	}
	part := &View{terms: v.terms, usage: t.usage}
	for i, f := range v.families {
		if of, ok := f.(Namespaced); ok {
			part.families = append(part.families, of.Namespace(namespace, session))
			part.kinds = append(part.kinds, v.kinds[i])
		}
	}
	part.shared = t.shared
	return part
}

// A restored state begins a block of 2^blockBits epochs. Each recovery of its source
// took two of them: half as many recoveries stay below.
const blockBits = 4

// RestoreIndex returns the index from which a state goes on that is restored from a
// backup of index i: above anything that its source can have issued behind i, also
// if the source was recovered ([EpochCommand]) up to 8 times since. Two states that
// are restored from the same i go on from the same index.
func RestoreIndex(i incumbent.Index) incumbent.Index {
	const bits = epochBits + blockBits
	return (i>>bits + 2) << bits
}
