package catalog

import (
	"encoding/binary"

	"github.com/incumbent-dev/incumbent/core/wire"
)

// The records as messages: of commands, nested, and of snapshots. The numbers are part
// of both: append only. Those below 10 are the commands' and the sections'.

type writer struct{ wire.Writer }

func (w *writer) texts(num wire.Number, list []string) {
	w.List(num, len(list), func(i int) []byte { return []byte(list[i]) })
}

// pairs writes keys and values in turn.
func (w *writer) pairs(num wire.Number, list []Pair) {
	w.List(num, 2*len(list), func(i int) []byte {
		if i%2 == 0 {
			return []byte(list[i/2].Key)
		}
		return []byte(list[i/2].Value)
	})
}

// addresses writes names, addresses and ports in turn.
func (w *writer) addresses(num wire.Number, list []Address) {
	w.List(num, 3*len(list), func(i int) []byte {
		switch a := &list[i/3]; i % 3 {
		case 0:
			return []byte(a.Name)
		case 1:
			return []byte(a.Address)
		default:
			return binary.BigEndian.AppendUint16(nil, a.Port)
		}
	})
}

// ports writes names and, as two bytes for the port and one for the default, ports in turn.
func (w *writer) ports(num wire.Number, list []Port) {
	w.List(num, 2*len(list), func(i int) []byte {
		p := &list[i/2]
		if i%2 == 0 {
			return []byte(p.Name)
		}
		is := byte(0)
		if p.Default {
			is = 1
		}
		return append(binary.BigEndian.AppendUint16(nil, p.Port), is)
	})
}

func (w *writer) node(n *Node) {
	w.Text(10, n.Namespace)
	w.Text(11, n.Name)
	w.Text(12, n.ID)
	w.Text(13, n.Address)
	w.pairs(14, n.TaggedAddresses)
	w.pairs(15, n.Meta)
	w.Text(16, n.Owner)
	w.Uint(17, uint64(n.Created))
	w.Uint(18, uint64(n.Modified))
}

func (n *Node) set(f *wire.Field) bool {
	switch f.Num {
	case 10:
		return f.CopyString(&n.Namespace)
	case 11:
		return f.CopyString(&n.Name)
	case 12:
		return f.CopyString(&n.ID)
	case 13:
		return f.CopyString(&n.Address)
	case 14:
		return pairs(f, &n.TaggedAddresses)
	case 15:
		return pairs(f, &n.Meta)
	case 16:
		return f.CopyString(&n.Owner)
	case 17:
		return f.Uint((*uint64)(&n.Created))
	case 18:
		return f.Uint((*uint64)(&n.Modified))
	}
	return false
}

func (w *writer) service(s *Service) {
	w.Text(10, s.Namespace)
	w.Text(11, s.Node)
	w.Text(12, s.ID)
	w.Text(13, s.Name)
	w.Text(14, s.Kind)
	w.texts(15, s.Tags)
	w.Text(16, s.Address)
	w.addresses(17, s.TaggedAddresses)
	w.pairs(18, s.Meta)
	w.Uint(19, uint64(s.Port))
	w.Uint(20, uint64(s.Weights.Passing))
	w.Uint(21, uint64(s.Weights.Warning))
	w.Flag(22, s.EnableTagOverride)
	w.Session(23, s.Session)
	w.Text(24, s.Owner)
	w.Uint(25, uint64(s.Created))
	w.Uint(26, uint64(s.Modified))
	w.ports(27, s.Ports)
	w.Text(28, s.SocketPath)
}

func (s *Service) set(f *wire.Field) bool {
	switch f.Num {
	case 10:
		return f.CopyString(&s.Namespace)
	case 11:
		return f.CopyString(&s.Node)
	case 12:
		return f.CopyString(&s.ID)
	case 13:
		return f.CopyString(&s.Name)
	case 14:
		return f.CopyString(&s.Kind)
	case 15:
		return texts(f, &s.Tags, MaxTags)
	case 16:
		return f.CopyString(&s.Address)
	case 17:
		return addresses(f, &s.TaggedAddresses)
	case 18:
		return pairs(f, &s.Meta)
	case 19:
		return number(f, &s.Port, 1<<16-1)
	case 20:
		return number(f, &s.Weights.Passing, MaxWeight)
	case 21:
		return number(f, &s.Weights.Warning, MaxWeight)
	case 22:
		return f.Flag(&s.EnableTagOverride)
	case 23:
		return f.Session(&s.Session)
	case 24:
		return f.CopyString(&s.Owner)
	case 25:
		return f.Uint((*uint64)(&s.Created))
	case 26:
		return f.Uint((*uint64)(&s.Modified))
	case 27:
		return ports(f, &s.Ports)
	case 28:
		return f.CopyString(&s.SocketPath)
	}
	return false
}

// check writes a check, but for what its service says.
func (w *writer) check(c *Check) {
	w.Text(10, c.Namespace)
	w.Text(11, c.Node)
	w.Text(12, c.ID)
	w.Text(13, c.Name)
	w.Uint(14, uint64(c.Status))
	w.Text(15, c.Notes)
	w.Text(16, c.Output)
	w.Text(17, c.ServiceID)
	w.Text(18, c.Type)
	w.Text(19, c.Interval)
	w.Text(20, c.Timeout)
	w.Millis(21, c.TTL)
	w.Millis(22, c.DeregisterAfter)
	w.Bytes(23, c.Definition)
	w.Uint(24, c.Runner)
	w.Uint(25, uint64(c.Since))
	w.Text(26, c.Owner)
	w.Uint(27, uint64(c.Created))
	w.Uint(28, uint64(c.Modified))
	w.Text(29, c.SessionName)
}

func (c *Check) set(f *wire.Field) bool {
	switch f.Num {
	case 10:
		return f.CopyString(&c.Namespace)
	case 11:
		return f.CopyString(&c.Node)
	case 12:
		return f.CopyString(&c.ID)
	case 13:
		return f.CopyString(&c.Name)
	case 14:
		return wire.Small(f, &c.Status)
	case 15:
		return f.CopyString(&c.Notes)
	case 16:
		return f.CopyString(&c.Output)
	case 17:
		return f.CopyString(&c.ServiceID)
	case 18:
		return f.CopyString(&c.Type)
	case 19:
		return f.CopyString(&c.Interval)
	case 20:
		return f.CopyString(&c.Timeout)
	case 21:
		return f.Millis(&c.TTL, MaxDuration)
	case 22:
		return f.Millis(&c.DeregisterAfter, MaxDuration)
	case 23:
		c.Definition = append([]byte(nil), f.B...)
		return f.Bytes(new([]byte))
	case 24:
		return f.Uint(&c.Runner)
	case 25:
		return f.Uint((*uint64)(&c.Since))
	case 26:
		return f.CopyString(&c.Owner)
	case 27:
		return f.Uint((*uint64)(&c.Created))
	case 28:
		return f.Uint((*uint64)(&c.Modified))
	case 29:
		return f.CopyString(&c.SessionName)
	}
	return false
}

func (w *writer) session(s *Session) {
	w.Session(10, s.ID)
	w.Text(11, s.Namespace)
	w.Text(12, s.Node)
	w.Text(13, s.Name)
	w.Millis(14, s.LockDelay)
	w.Uint(15, uint64(s.Behavior))
	w.texts(16, s.NodeChecks)
	w.texts(17, s.ServiceChecks)
	w.Millis(18, s.TTL)
	w.Uint(19, uint64(s.Created))
	w.Uint(20, uint64(s.Modified))
	w.Flag(21, s.Leads)
}

func (s *Session) set(f *wire.Field) bool {
	switch f.Num {
	case 10:
		return f.Session(&s.ID)
	case 11:
		return f.CopyString(&s.Namespace)
	case 12:
		return f.CopyString(&s.Node)
	case 13:
		return f.CopyString(&s.Name)
	case 14:
		return f.Millis(&s.LockDelay, MaxLockDelay)
	case 15:
		return wire.Small(f, &s.Behavior)
	case 16:
		return texts(f, &s.NodeChecks, MaxChecksPerSession)
	case 17:
		return texts(f, &s.ServiceChecks, MaxChecksPerSession)
	case 18:
		return f.Millis(&s.TTL, MaxDuration)
	case 19:
		return f.Uint((*uint64)(&s.Created))
	case 20:
		return f.Uint((*uint64)(&s.Modified))
	case 21:
		return f.Flag(&s.Leads)
	}
	return false
}

// message is a record that is read field by field.
type message interface{ set(*wire.Field) bool }

// readInto reads a message.
func readInto(b []byte, m message) bool {
	return wire.Fields(b, func(f wire.Field) bool { return m.set(&f) })
}

// nested reads a message that is a field.
func nested(f *wire.Field, m message) bool {
	var b []byte
	return f.Bytes(&b) && readInto(b, m)
}

func number[T ~uint16 | ~uint32](f *wire.Field, to *T, most uint64) bool {
	var n uint64
	ok := f.Uint(&n) && n <= most
	*to = T(n)
	return ok
}

func texts(f *wire.Field, to *[]string, most int) bool {
	return f.Each(most, func(b []byte) bool {
		*to = append(*to, string(b))
		return true
	})
}

func pairs(f *wire.Field, to *[]Pair) bool {
	var key []byte
	n := 0
	return f.Each(2*MaxPairs, func(b []byte) bool {
		if n++; n%2 == 1 {
			key = b
		} else {
			*to = append(*to, Pair{string(key), string(b)})
		}
		return true
	}) && n%2 == 0
}

func ports(f *wire.Field, to *[]Port) bool {
	n := 0
	return f.Each(2*MaxPorts, func(b []byte) bool {
		if n++; n%2 == 1 {
			*to = append(*to, Port{Name: string(b)})
			return true
		}
		if len(b) != 3 || b[2] > 1 {
			return false
		}
		p := &(*to)[len(*to)-1]
		p.Port, p.Default = binary.BigEndian.Uint16(b), b[2] == 1
		return true
	}) && n%2 == 0
}

func addresses(f *wire.Field, to *[]Address) bool {
	n := 0
	return f.Each(3*MaxPairs, func(b []byte) bool {
		if n%3 == 0 {
			*to = append(*to, Address{})
		}
		a := &(*to)[len(*to)-1]
		n++
		switch n % 3 {
		case 1:
			a.Name = string(b)
		case 2:
			a.Address = string(b)
		default:
			if len(b) != 2 {
				return false
			}
			a.Port = binary.BigEndian.Uint16(b)
		}
		return true
	}) && n%3 == 0
}
