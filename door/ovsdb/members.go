package ovsdb

// members is a set that mostly has one element: a slice then, which costs a tenth of a
// map, and with many elements a map besides, so that none is looked for. The zero
// members is empty.
type members[T comparable] struct {
	list []T
	at   map[T]int // where in list; nil while these are few
}

// fewMembers are so many that looking through them costs no more than a map.
const fewMembers = 16

func (s *members[T]) add(x T) {
	if s.place(x) >= 0 {
		return
	}
	s.list = append(s.list, x)
	switch {
	case s.at != nil:
		s.at[x] = len(s.list) - 1
	case len(s.list) > fewMembers:
		s.at = make(map[T]int, 2*fewMembers)
		for i, x := range s.list {
			s.at[x] = i
		}
	}
}

// remove takes an element out; the last one takes its place.
func (s *members[T]) remove(x T) {
	i := s.place(x)
	if i < 0 {
		return
	}
	var none T
	last := len(s.list) - 1
	moved := s.list[last]
	s.list[i], s.list[last] = moved, none
	s.list = s.list[:last]
	if s.at != nil {
		s.at[moved] = i
		delete(s.at, x)
	}
	if last <= fewMembers/2 {
		s.at = nil
	}
}

func (s *members[T]) place(x T) int {
	if s.at != nil {
		if i, ok := s.at[x]; ok {
			return i
		}
		return -1
	}
	for i := range s.list {
		if s.list[i] == x {
			return i
		}
	}
	return -1
}
