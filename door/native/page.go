package native

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// room is what is left of an answer that shows a list: a record of a lease may
// have 64 pins, and a page of such records would be larger than a connection
// may queue.
type room struct {
	left  int // records
	bytes int // the last record may take more
}

// newPage returns the room of a page for which a request names a limit.
func newPage(limit uint32) (room, error) {
	n := cmp.Or(int(limit), DefaultPage)
	if n > MaxPage {
		return room{}, invalid("limit", "%d is over %d", limit, MaxPage)
	}
	return room{left: n, bytes: pageBytes}, nil
}

func (r *room) full() bool { return r.left <= 0 || r.bytes <= 0 }

func (r *room) use(record proto.Message) {
	r.left--
	r.bytes -= proto.Size(record)
}

// owned is a page of what a session holds and waits for, in the order of names.
type owned struct {
	leases []*pb.Lease
	waits  []*pb.LeaseName
	held   int           // leases of all pages
	next   *pb.LeaseName // the last of this page, if there are more
}

// owned returns the page behind a name, of what the caller sees.
func (f *former) owned(id incumbent.SessionID, after incumbent.Name, page room, sees func(incumbent.Name) bool) owned {
	var o owned
	var holds, waits []*leases.Lease // behind after, one more of each than a page has
	behind := func(list *[]*leases.Lease, l *leases.Lease) bool {
		if len(*list) <= page.left && after.Compare(l.Name) < 0 && sees(l.Name) {
			*list = append(*list, l)
		}
		return len(*list) <= page.left
	}
	leases.Of(f.view).OfSession(id, func(l *leases.Lease) bool {
		o.held++
		behind(&holds, l)
		return true
	})
	leases.Of(f.view).WaitsOf(id, func(l *leases.Lease) bool { return behind(&waits, l) })

	for len(holds)+len(waits) > 0 {
		if page.full() {
			o.next = namePB(after)
			return o
		}
		has := len(waits) == 0 || len(holds) > 0 && holds[0].Name.Compare(waits[0].Name) <= 0
		waited := len(holds) == 0 || len(waits) > 0 && waits[0].Name.Compare(holds[0].Name) <= 0
		if has {
			after = holds[0].Name
			p := f.kept(holds[0], false)
			page.use(p)
			o.leases, holds = append(o.leases, p), holds[1:]
		}
		if waited { // perhaps for the very lease it holds
			after = waits[0].Name
			p := namePB(after)
			page.use(p)
			o.waits, waits = append(o.waits, p), waits[1:]
		}
	}
	return o
}
