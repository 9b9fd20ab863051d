package watch

import (
	"cmp"
	"slices"
)

// QueryUse is how many use a query.
type QueryUse struct {
	Kind   Kind
	Params string
	Users  int // who have it and have not released it, whatever their rights
}

// Busiest returns the queries that most use, at most n, most used first, of those
// whose kind and parameters may be shown.
func (s *Queries[V]) Busiest(n int, shown func(kind Kind, params string) bool) []QueryUse {
	type what struct {
		kind   Kind
		params string
	}
	users := map[what]int{}
	s.mu.Lock()
	for key, q := range s.byKey {
		if q.refs > 0 && shown(key.Kind, key.Params) {
			users[what{key.Kind, key.Params}] += q.refs
		}
	}
	s.mu.Unlock()
	all := make([]QueryUse, 0, len(users))
	for w, k := range users {
		all = append(all, QueryUse{w.kind, w.params, k})
	}
	slices.SortFunc(all, func(a, b QueryUse) int {
		return cmp.Or(cmp.Compare(b.Users, a.Users), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Params, b.Params))
	})
	return all[:min(n, len(all))]
}
