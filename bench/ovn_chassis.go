package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// ovnChassis is a client in the place of a hypervisor's ovn-controller. It watches for
// the bindings of its own ports, claims each for its chassis, and then says that it is up,
// which a real one does once its flows are there.
type ovnChassis struct {
	*ovnNetwork
	id    int
	uuid  string
	encap string
	names []string        // of its ports
	up    map[string]bool // uuids of bindings that are up
	seen  map[string]bool // of those that are not: whether they are claimed
}

// newChassis registers client i.
func (n *ovnNetwork) newChassis(ctx context.Context, i int) (*ovnChassis, error) {
	c := &ovnChassis{ovnNetwork: n, id: i, up: map[string]bool{}, seen: map[string]bool{}}
	for p := i; p < len(n.names); p += n.sc.Closed.Workers {
		c.names = append(c.names, n.names[p])
	}
	conn, err := dialOVN(ctx, n.addresses[i%len(n.addresses)], n.source(i))
	if err != nil {
		return nil, err
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()
	conn.database = ovnSouthbound
	name, ip := fmt.Sprintf("chassis-%d", i), fmt.Sprintf("172.16.%d.%d", i>>8, i&0xff)
	results, err := conn.transact(fmt.Sprintf(`{"op":"insert","table":"Encap","uuid-name":"e","row":{"type":"geneve","ip":%q,"chassis_name":%q}},`+
		`{"op":"insert","table":"Chassis","uuid-name":"c","row":{"name":%[2]q,"hostname":%[2]q,"encaps":["named-uuid","e"]}},`+
		`{"op":"insert","table":"Chassis_Private","row":{"name":%[2]q,"chassis":["named-uuid","c"]}}`, ip, name))
	if err != nil {
		return nil, err
	}
	c.encap, c.uuid = results[0].UUID[1], results[1].UUID[1]
	return c, nil
}

// run binds the ports whose bindings come, until all are up or ctx ends. It says once that
// it watches.
func (c *ovnChassis) run(ctx context.Context, watching chan<- struct{}) error {
	where := []string{fmt.Sprintf(`["chassis","==",["uuid",%q]]`, c.uuid)}
	for _, name := range c.names {
		where = append(where, fmt.Sprintf(`["logical_port","==",%q]`, name))
	}
	what := `{"columns":["logical_port","datapath","tunnel_key","chassis","up"],"where":[` + strings.Join(where, ",") + `]}`
	var once sync.Once
	return c.follow(ctx, c.id, ovnSouthbound, func(conn *ovnConn) error {
		if err := follow(conn, "Port_Binding", what, c.told); err != nil {
			return err
		}
		once.Do(func() { watching <- struct{}{} })
		for len(c.up) < len(c.names) {
			if err := conn.hear(func() bool { return len(c.seen) > 0 }); err != nil {
				return err
			}
			if err := c.bind(ctx, conn); err != nil {
				return err
			}
		}
		return nil
	})
}

// ovnBinding is what a chassis looks at.
type ovnBinding struct {
	Port    *string         `json:"logical_port"` // none: what follows is what changed
	Chassis json.RawMessage `json:"chassis"`
	Up      json.RawMessage `json:"up"`
}

// told notes a binding that comes, or that was there when a connection was made again.
func (c *ovnChassis) told(uuid string, row ovnBinding) {
	if row.Port == nil || c.up[uuid] {
		return
	}
	c.seen[uuid] = strings.Contains(string(row.Chassis), c.uuid)
	if string(row.Up) == "true" {
		c.isUp(uuid)
	}
}

func (c *ovnChassis) isUp(uuid string) {
	delete(c.seen, uuid)
	c.up[uuid] = true
}

// bind claims the bindings that came, all in one transaction, and reports them up in the
// next.
func (c *ovnChassis) bind(ctx context.Context, conn *ovnConn) error {
	var unclaimed []string
	all := slices.Collect(maps.Keys(c.seen))
	for _, uuid := range all {
		if !c.seen[uuid] {
			unclaimed = append(unclaimed, uuid)
		}
	}
	if len(unclaimed) > 0 {
		if err := c.update(ctx, conn, c.claim, unclaimed, fmt.Sprintf(`{"chassis":["uuid",%q],"encap":["uuid",%q]}`, c.uuid, c.encap)); err != nil {
			return err
		}
	}
	if err := c.update(ctx, conn, c.report, all, `{"up":true}`); err != nil {
		return err
	}
	for _, uuid := range all {
		c.isUp(uuid)
	}
	return nil
}

func (c *ovnChassis) update(ctx context.Context, conn *ovnConn, record *opRecord, bindings []string, row string) error {
	var ops []string
	for _, uuid := range bindings {
		ops = append(ops, fmt.Sprintf(`{"op":"update","table":"Port_Binding","where":[["_uuid","==",["uuid",%q]]],"row":%s}`, uuid, row))
	}
	began := c.now()
	_, err := conn.transact(strings.Join(ops, ","))
	c.outcome(ctx, record, began, err)
	return err
}
