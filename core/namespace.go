package core

import "github.com/incumbent-dev/incumbent"

// Content is how many records of one kind a state has.
type Content struct {
	Name    string `json:"name"` // sessions, leases, results, members, or a family's
	Records int    `json:"records"`
}

// Contents counts the records of a state, as they stand in its snapshot.
func (v *View) Contents() []Content {
	n := v.shared.sizes()
	list := []Content{
		{"sessions", int(n.sessions)}, {"leases", int(n.leases)}, {"results", int(n.kept)}, {"members", int(n.members)},
	}
	for _, f := range v.families {
		list = append(list, Content{f.name, f.Records()})
	}
	return list
}

// Namespaced is the view of a family whose records belong to namespaces.
type Namespaced interface {
	// Namespace returns the records of one namespace, and calls session with each
	// session that one of them names.
	Namespace(namespace string, session func(incumbent.SessionID)) FamilyView
}

// Namespace returns the part of a state that belongs to one namespace: its leases
// with their queues, what families have in it, and the sessions that own a lease,
// wait for one or are named by a record there, no others. Index and members are the
// state's. No result of a keyed command is part of it: a key that was chosen before
// counts as forgotten. A family without namespaces is left out.
func (v *View) Namespace(namespace string) *View {
	t := newTables()
	t.index, t.keysFloor = v.index, v.index
	t.members, t.goneMembers = v.members, v.goneMembers
	session := func(id incumbent.SessionID) {
		if s := v.session(id); s != nil {
			t.putSession(s)
		}
	}
	v.Leases(namespace, "", "", incumbent.Name{}, func(l *Lease) bool {
		own := *l
		own.entry = &entry{Name: l.Name}
		t.replace(nil, &own)
		session(l.Session)
		for w := range v.Queue(l.Name) {
			session(w.Session)
			t.addPlace(own.entry, w)
		}
		return true
	})
	part := &View{shared: t.shared, terms: v.terms, usage: t.usage}
	for _, f := range v.families {
		if of, ok := f.FamilyView.(Namespaced); ok {
			part.families = append(part.families, namedView{of.Namespace(namespace, session), f.number, f.schema, f.name})
		}
	}
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
