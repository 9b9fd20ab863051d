package server

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
)

// Values of the setting audit-log that are no file.
const (
	AuditNone   = ""       // no log is kept; what is denied is counted, and in events, all the same
	AuditStderr = "stderr" // standard error: of a service, the journal
)

// The doors by which something is denied, as in metrics and records.
const (
	doorNative = "native" // as both doors name themselves
	doorJuju   = "juju"
	doorConsul = "consul"
	doorOVSDB  = "ovsdb"
	doorHTTP   = "http"  // metrics and profiles
	doorPeers  = "peers" // other members, and those who want to be
)

// otherAction counts what is denied under no action of package auth.
const otherAction = "other"

// trail is the one place that hears of every change that somebody made, and of
// everything that somebody was not let do: it counts, notes among the events and
// writes the audit log. It never waits.
type trail struct {
	log     *audit.Log // nil: none is kept
	counts  map[denial]prometheus.Counter
	denials *denials
	now     func() time.Time
}

// denial is what denials are counted by.
type denial struct {
	door, action string
	reason       audit.Reason
}

func newTrail(cfg Config, m *metrics, events *timeline, now func() time.Time) (*trail, error) {
	t := &trail{counts: countDenials(m), now: now}
	t.denials = newDenials(events, t.write, cfg.Consul.Anonymous, cfg.OVSDB.Anonymous)
	if cfg.AuditLog == AuditNone {
		return t, nil
	}
	var sink audit.Sink = audit.Stream{W: os.Stderr}
	if cfg.AuditLog != AuditStderr {
		f, err := audit.OpenFile(cfg.AuditLog, cfg.AuditLogBytes, cfg.AuditLogKeep)
		if err != nil {
			return nil, invalid("audit-log", "%w", err)
		}
		sink = f
	}
	t.log = audit.New(cfg.Name, sink, now, cfg.Logger)
	m.counter("incumbent_audit_lost_total", "Records of the audit log that were lost, since they could not be written in time.", nil,
		func() float64 { return float64(t.log.Lost()) })
	return t, nil
}

// countDenials makes a counter for all that can be denied.
func countDenials(m *metrics) map[denial]prometheus.Counter {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "incumbent_denied_total", Help: "Logins and calls that were denied, by door, action and reason.",
	}, []string{"door", "action", "reason"})
	m.registry.MustRegister(vec)
	counts := map[denial]prometheus.Counter{}
	add := func(door, action string, reasons ...audit.Reason) {
		for _, r := range reasons {
			counts[denial{door, action, r}] = vec.WithLabelValues(door, action, r.String())
		}
	}
	for _, door := range []string{doorNative, doorJuju, doorConsul, doorOVSDB, doorHTTP, doorPeers} {
		add(door, audit.Login, audit.Identity, audit.Guesses, audit.Permission)
		add(door, otherAction, audit.Permission)
		for a := range auth.NumActions {
			add(door, a.String(), audit.Permission, audit.Owner)
		}
	}
	return counts
}

// note takes note of a change that somebody made, or of what somebody was not let
// do. It is for any goroutine, and for all doors.
func (t *trail) note(r audit.Record) {
	if r.At.IsZero() {
		r.At = t.now()
	}
	if r.Outcome == audit.Denied {
		t.count(&r)
		if !t.denials.add(&r) {
			return // the minute's end says how many there were
		}
	}
	t.write(r)
}

func (t *trail) write(r audit.Record) {
	if t.log != nil {
		t.log.Write(r)
	}
}

func (t *trail) count(r *audit.Record) {
	c := t.counts[denial{r.Door, r.Action, r.Reason}]
	if c == nil {
		c = t.counts[denial{r.Door, otherAction, audit.Permission}]
	}
	if c != nil {
		c.Inc()
	}
}

// reopen goes on in another file, after SIGHUP.
func (t *trail) reopen() {
	if t.log != nil {
		t.log.Reopen()
	}
}

// auditFlush is how long a member that leaves waits for the audit log.
const auditFlush = 2 * time.Second

func (t *trail) close() {
	if t.log != nil {
		t.log.Close(auditFlush)
	}
}

// Bounds of what is denied, among the events and in the audit log: an attacker must
// not be able to push out what else is there. A day of such events is a sixth of
// those that are kept.
const (
	strangersKept  = 64          // addresses from which strangers come that are told apart within a minute
	principalsKept = 1024        // principals, each at an address, that are told apart besides
	denialBurst    = 60          // events at once
	denialEvery    = time.Minute // after which there may be one more, and after which is said how often it was
	denialRecords  = 100         // of who is told apart, and of all strangers and all principals that are not, within a minute
	deniedEvent    = "denied"
	maxDeniedWho   = 256 // bytes of a principal in an event
)

// denials says what is denied: in events at once for who is told apart, then once a
// minute how often it was since; in the audit log one by one up to a number, then as
// often. Principals are told apart by name and address, strangers by address alone: what
// they call themselves costs them nothing, and is to take no place of who is known.
type denials struct {
	events *timeline
	write  func(audit.Record)
	free   map[string]bool // names that whoever brings nothing goes by

	mu                    sync.Mutex // protects what follows; held for a look-up, and for a minute's events
	minute                time.Time
	principals, strangers crowd
	room                  int    // events that may be noted at once
	unsaid                uint64 // denials that found no room
}

// crowd is those who were denied something within the minute.
type crowd struct {
	most   int // that are told apart
	seen   map[denied]*repeated
	others repeated // of those that were too many to be told apart
}

// denied is who was denied something, and from where. Ports change with each try.
type denied struct{ principal, host string }

// repeated is how often something was denied within the minute.
type repeated struct {
	n    uint64
	last audit.Record
}

func (r *repeated) add(last *audit.Record) (record bool) {
	r.n, r.last = r.n+1, *last
	return r.n <= denialRecords
}

// newDenials returns one that has heard of none. free are the names, as kind and name,
// that whoever brings nothing goes by; "" is none.
func newDenials(events *timeline, write func(audit.Record), free ...string) *denials {
	d := &denials{
		events: events, write: write, room: denialBurst, free: map[string]bool{"": true, auth.Principal{}.String(): true},
		principals: crowd{most: principalsKept, seen: map[denied]*repeated{}},
		strangers:  crowd{most: strangersKept, seen: map[denied]*repeated{}},
	}
	for _, name := range free {
		d.free[name] = true
	}
	return d
}

// stranger reports whether a record is of somebody who has not shown who it is.
func (d *denials) stranger(r *audit.Record) bool {
	return r.Reason == audit.Identity || r.Reason == audit.Guesses || d.free[r.Principal]
}

// add takes note of a denial, and reports whether it is to have a record of its own.
func (d *denials) add(r *audit.Record) (record bool) {
	who := denied{r.Principal[:min(len(r.Principal), maxDeniedWho)], networkOf(r.Address)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn(r.At)
	c, key := &d.principals, who
	if d.stranger(r) {
		c, key = &d.strangers, denied{host: who.host}
	}
	again := c.seen[key]
	switch {
	case again != nil:
		return again.add(r)
	case len(c.seen) >= c.most:
		return c.others.add(r)
	}
	c.seen[key] = &repeated{n: 1, last: *r}
	d.say(who, 1, whatOf(r))
	return true
}

func whatOf(r *audit.Record) string {
	return fmt.Sprintf("%s by the %s door: %s", r.Action, r.Door, r.Reason)
}

// flush says what a minute that is over had, also if nothing happens any more.
func (d *denials) flush(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turn(now)
}

// turn begins another minute, an earlier one where the wall clock was put back: it may
// have been years ahead, and nothing is to be held back for so long.
func (d *denials) turn(now time.Time) {
	minute := now.Truncate(denialEvery)
	if minute.Equal(d.minute) {
		return
	}
	if !d.minute.IsZero() {
		gained := min(max(0, minute.Sub(d.minute)/denialEvery), denialBurst)
		d.room = min(denialBurst, d.room+int(gained))
	}
	d.minute = minute
	d.close(&d.principals)
	d.close(&d.strangers)
}

// close says what a minute that is over had of some.
func (d *denials) close(c *crowd) {
	for who, again := range c.seen {
		if again.n > 1 {
			d.say(who, again.n-1, "then "+whatOf(&again.last))
		}
		d.rest(again, who)
	}
	if c.others.n > 0 {
		d.say(denied{"others", ""}, c.others.n, "too many to be told apart")
		d.rest(&c.others, denied{})
	}
	clear(c.seen)
	c.others = repeated{}
}

// rest records how many denials had no record of their own.
func (d *denials) rest(of *repeated, who denied) {
	if of.n <= denialRecords {
		return
	}
	r := of.last
	r.Principal, r.Address, r.Subject = who.principal, who.host, ""
	r.Detail = fmt.Sprintf("%d more within a minute, this the last of them", of.n-denialRecords)
	d.write(r)
}

// say notes an event, if there is room for one.
func (d *denials) say(who denied, n uint64, what string) {
	if d.room == 0 {
		d.unsaid += n
		return
	}
	d.room--
	subject := who.principal
	if subject == "" {
		subject = "nobody known"
	}
	detail := what
	if who.host != "" {
		detail = "from " + who.host + ", " + what
	}
	if n > 1 {
		detail = fmt.Sprintf("%s, %d times", detail, n)
	}
	if d.unsaid > 0 {
		detail += fmt.Sprintf("; %s before it not noted", plural(int64(d.unsaid), "denial", "denials"))
		d.unsaid = 0
	}
	d.events.add(Event{What: deniedEvent, Subject: subject, Detail: detail})
}

// networkBits are what one customer of a provider has of an IPv6 address: who has one
// address of it has all.
const networkBits = 64

// networkOf is an address without its port; of IPv6 it is the network.
func networkOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host // a socket of this machine
	}
	a = a.Unmap().WithZone("")
	if !a.Is6() || a.IsLoopback() {
		return a.String()
	}
	p, err := a.Prefix(networkBits)
	if err != nil {
		return host
	}
	return p.String()
}
