package consul

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// Events are keys of a namespace of their own, which all members have: the last ones that
// were fired. An event's id says the index of its key, in the way in which clients find
// out which events of a list they have seen.

// Limits of events, as Consul's clients know them.
const (
	maxEvents       = 256 // that are kept
	maxEventPayload = 300 // bytes
)

// eventRoutes are about events.
func eventRoutes() []route {
	return []route{
		{"/v1/event/fire/", methods{"PUT": eventFire}},
		{"/v1/event/list", methods{"GET": eventList}},
	}
}

// eventNamespace is that of the keys that are events.
func (d *Door) eventNamespace() string { return auth.EventsOf + d.namespace }

// eventName is an event's for policies.
func (d *Door) eventName(name string) incumbent.Name {
	return incumbent.Name{Namespace: d.eventNamespace(), Lease: name}
}

// eventJSON is an event in answers and, but for ID and LTime, in the value of its key.
type eventJSON struct {
	ID            string
	Name          string
	Payload       []byte
	NodeFilter    string
	ServiceFilter string
	TagFilter     string
	Version       int
	LTime         uint64
}

// eventID is the id whose halves differ by an index: clients tell how far a list goes by
// that.
func eventID(at incumbent.Index) string {
	upper := uint64(at) * 0x9e3779b97f4a7c15 // spread, so that ids do not look alike
	lower := upper ^ uint64(at)
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", upper>>32, upper>>16&0xffff, upper&0xffff, lower>>48, lower&0xffffffffffff)
}

// eventFire tells all of an event.
func eventFire(d *Door, r *request) {
	e := eventJSON{
		Name: r.rest, NodeFilter: r.query.Get("node"), ServiceFilter: r.query.Get("service"), TagFilter: r.query.Get("tag"), Version: 1,
	}
	if e.Name == "" {
		r.fail(http.StatusBadRequest, "Missing name")
		return
	}
	if n := len(r.body); n > maxEventPayload {
		r.fail(http.StatusRequestEntityTooLarge, "Event payload too large, received %d bytes, max size: %d bytes", n, maxEventPayload)
		return
	}
	if len(r.body) > 0 {
		e.Payload = r.body
	}
	mine, err := d.reaches(&e)
	if err != nil {
		r.fail(http.StatusInternalServerError, "%v", err)
		return
	}
	if err := r.authorize(auth.KeyWrite, auth.Resource{Name: d.eventName(e.Name), Door: doorName}, e.Name); err != nil {
		r.failFor(err)
		return
	}
	if !mine { // it is for other agents, of which there are none
		e.ID = incumbent.NewSessionID().String()
		r.json(http.StatusOK, e)
		return
	}
	value, err := json.Marshal(e)
	if err != nil {
		r.failFor(incumbent.Errorf(incumbent.Internal, "encode an event: %w", err))
		return
	}
	r.propose(d.keepEvent(value), false, r.changing(auth.KeyWrite, audit.In(d.eventNamespace(), e.Name)), func(res core.Result) {
		if res.Err != nil {
			r.failFor(res.Err)
			return
		}
		e.ID = eventID(res.Index)
		r.json(http.StatusOK, e)
	})
}

// keepEvent stores an event, and deletes the oldest that there is no room for any more.
func (d *Door) keepEvent(value []byte) core.TxnCommand {
	key := kv.Key{Namespace: d.eventNamespace(), Name: incumbent.NewSessionID().String()}
	c := core.TxnCommand{Then: []core.Command{kv.Command{Verb: kv.Put, Key: key, Value: value}}}
	kept := eventsOf(engine.Read(d.view(), nil), d.eventNamespace())
	for i := range len(kept) - maxEvents + 1 {
		c.Then = append(c.Then, kv.Command{Verb: kv.Remove, Key: kept[i].Key})
	}
	return c
}

// eventsOf are the keys that are events, oldest first.
func eventsOf(from engine.Reading, namespace string) (list []*kv.Entry) {
	from.Keys(kv.Key{Namespace: namespace}, kv.Key{}, func(e *kv.Entry) bool {
		list = append(list, e)
		return true
	})
	slices.SortFunc(list, func(a, b *kv.Entry) int { return cmp.Compare(a.Created, b.Created) })
	return list
}

// reaches reports whether an event is for the node that the agent is, and a service on it.
// The error says which filter is wrong.
func (d *Door) reaches(e *eventJSON) (bool, error) {
	if e.TagFilter != "" && e.ServiceFilter == "" {
		return false, errors.New("Cannot provide tag filter without service filter") //nolint:staticcheck // what clients know
	}
	var filters [3]*regexp.Regexp
	for i, f := range [...]struct{ what, text string }{{"node", e.NodeFilter}, {"service", e.ServiceFilter}, {"tag", e.TagFilter}} {
		var err error
		if filters[i], err = regexp.Compile(f.text); err != nil {
			return false, fmt.Errorf("Invalid %s filter: %w", f.what, err) //nolint:staticcheck // what clients know
		}
	}
	if !filters[0].MatchString(d.cfg.Node) {
		return false, nil
	}
	found := e.ServiceFilter == ""
	catalog.Of(d.view()).NodeServices(d.namespace, d.cfg.Node, func(s *catalog.Service) bool {
		found = found || filters[1].MatchString(s.Name) && (e.TagFilter == "" || slices.ContainsFunc(s.Tags, filters[2].MatchString))
		return !found
	})
	return found, nil
}

// eventList lists the last events, oldest first, and waits for another one.
func eventList(d *Door, r *request) {
	name, sight := r.query.Get("name"), r.who.sight(auth.KeyRead)
	r.shared(sharedQuery{kind: "events", params: name, rights: sight.Key(), eval: func(v *core.View, reads *watch.Reads) result {
		list, res := []eventJSON{}, result{local: true}
		for _, k := range eventsOf(engine.Read(v, reads), d.eventNamespace()) {
			var e eventJSON
			if json.Unmarshal(k.Value, &e) != nil || name != "" && e.Name != name {
				continue // what somebody else has put there is no event
			}
			if !sight.Sees(d.eventName(e.Name)) {
				res.filtered = true
				continue
			}
			e.ID, e.LTime = eventID(k.Created), uint64(k.Created)
			res.index = k.Created
			list = append(list, e)
		}
		res.index = max(res.index, 1)
		return res.encoded(list)
	}})
}

// encoded is the result with a list as its body.
func (res result) encoded(list any) result {
	text, err := json.Marshal(list)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "encode a list: %w", err))
	}
	digest := watch.NewDigest()
	digest.Bytes(text)
	res.hash, res.size, res.body = digest.Sum(), 2*len(text), newBody(func() []byte { return text })
	return res
}
