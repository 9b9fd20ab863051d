package dns

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Numbers of the domain's SOA, in seconds.
const (
	soaRefresh = 3600
	soaRetry   = 600
	soaExpire  = 86400
	soaMinTTL  = 0 // what is not there may be there at once
)

// maxName is how many bytes a name may take in a message, RFC 1035 section 3.1.
const maxName = 255

// maxText is how long one string of a TXT record may be, RFC 1035 section 3.3.14.
const maxText = 255

// answer returns the answer to a message; nil: it deserves none.
func (d *Door) answer(in []byte, datagram bool, v verdict) []byte {
	var q dns.Msg
	if err := q.Unpack(in); err != nil || q.Response {
		d.counts.malformed.Add(1)
		if err == nil || len(in) < 12 || q.Response {
			return nil
		}
		m := dns.Msg{MsgHdr: dns.MsgHdr{Id: q.Id, Response: true, Opcode: q.Opcode, Rcode: dns.RcodeFormatError}}
		return d.pack(&m, 0, dns.RcodeFormatError)
	}
	m := new(dns.Msg).SetReply(&q)
	m.Compress = true
	size := dns.MaxMsgSize
	most := maxAnswers
	if datagram {
		size, most = dns.MinMsgSize, d.cfg.UDPAnswers
	}
	if o := q.IsEdns0(); o != nil {
		if datagram {
			size, most = min(max(int(o.UDPSize()), dns.MinMsgSize), MaxDatagram), -1
		}
		m.SetEdns0(MaxDatagram, false)
		if o.Version() != 0 {
			m.Rcode = dns.RcodeBadVers
			return d.pack(m, typeOf(&q), m.Rcode)
		}
	}
	switch {
	case q.Opcode != dns.OpcodeQuery:
		m.Rcode = dns.RcodeNotImplemented
	case len(q.Question) != 1:
		m.Rcode = dns.RcodeFormatError
	case v == slip:
		d.counts.limited[slip].Add(1)
		m.Truncated = true
	default:
		d.resolve(m, q.Question[0])
		trim(m, most)
		fit(m, size)
	}
	return d.pack(m, typeOf(&q), m.Rcode)
}

func typeOf(q *dns.Msg) uint16 {
	if len(q.Question) != 1 {
		return dns.TypeNone
	}
	return q.Question[0].Qtype
}

func (d *Door) pack(m *dns.Msg, qtype uint16, rcode int) []byte {
	b, err := m.Pack()
	if err != nil { // a record that cannot be written: a name of the catalog that is none
		d.cfg.Logger.Warn("answer not packed", "cause", err)
		*m = dns.Msg{MsgHdr: dns.MsgHdr{Id: m.Id, Response: true, Rcode: dns.RcodeServerFailure}, Question: m.Question}
		rcode = dns.RcodeServerFailure
		if b, err = m.Pack(); err != nil {
			return nil
		}
	}
	d.counts.answered(qtype, rcode)
	return b
}

// resolve fills an answer in.
func (d *Door) resolve(m *dns.Msg, q dns.Question) {
	if q.Qclass != dns.ClassINET && q.Qclass != dns.ClassANY {
		m.Rcode = dns.RcodeRefused
		return
	}
	l := d.lookupOf(q.Name)
	if l.kind == foreign {
		m.Rcode = dns.RcodeRefused
		return
	}
	names, age := d.cfg.Names()
	if age > d.cfg.MaxAge {
		m.Rcode = dns.RcodeServerFailure
		return
	}
	a := answering{door: d, names: names, msg: m, owner: q.Name, qtype: q.Qtype}
	m.Authoritative = true
	exists := a.look(l)
	switch {
	case l.kind == reverse && !exists:
		m.Authoritative = false
		m.Rcode = dns.RcodeRefused // it may be somebody else's
		return
	case !exists:
		m.Rcode = dns.RcodeNameError
	}
	if len(m.Answer) == 0 && len(m.Ns) == 0 {
		m.Ns = append(m.Ns, d.soa())
	}
}

// answering is one answer that is being made.
type answering struct {
	door  *Door
	names Names
	msg   *dns.Msg
	owner string // as it was asked for
	qtype uint16
	// followed says that an alias led here. It leads no further: two of them could lead
	// round and round.
	followed bool
	// addressed says that an instance has an address, of whichever kind: then the name is no alias.
	addressed bool
}

// look puts the records of a name into the answer, and reports whether there is such
// a name.
func (a *answering) look(l lookup) bool {
	switch l.kind {
	case apex:
		a.domain()
		return true
	case between:
		return true
	case service:
		return a.service(l)
	case query:
		return a.prepared(l.name)
	case node:
		n, ok := a.names.Node(l.name)
		if ok {
			a.node(n)
		}
		return ok
	case address:
		a.msg.Answer = append(a.msg.Answer, a.addresses(a.owner, l.ip, a.door.cfg.NodeTTL)...)
		return true
	case reverse:
		return a.reverse(l.ip)
	case unknown, foreign:
	}
	return false
}

func (a *answering) wants(qtype uint16) bool { return a.qtype == qtype || a.qtype == dns.TypeANY }

// domain answers for the domain itself.
func (a *answering) domain() {
	if a.wants(dns.TypeSOA) {
		a.msg.Answer = append(a.msg.Answer, a.door.soa())
	}
	if !a.wants(dns.TypeNS) {
		return
	}
	for _, s := range a.names.Servers() {
		name := a.door.nodeName(s.Name)
		if !writable(name) {
			continue
		}
		a.msg.Answer = append(a.msg.Answer, &dns.NS{Hdr: header(a.door.zone, dns.TypeNS, a.door.cfg.NodeTTL), Ns: name})
		a.msg.Extra = append(a.msg.Extra, a.both(name, s.Address, a.door.cfg.NodeTTL)...)
	}
}

// node answers for a node.
func (a *answering) node(n Node) {
	ttl := a.door.cfg.NodeTTL
	if ip, err := netip.ParseAddr(n.Address); err == nil {
		a.msg.Answer = append(a.msg.Answer, a.addresses(a.owner, ip, ttl)...)
	} else {
		a.alias(n.Address, ttl)
	}
	if a.wants(dns.TypeTXT) {
		a.msg.Answer = append(a.msg.Answer, texts(a.owner, n.Meta, ttl)...)
	}
}

// service answers for a service.
func (a *answering) service(l lookup) bool {
	var all []Instance
	a.names.Instances(l.name, func(i Instance) bool {
		if i.Status < Critical && !(a.door.cfg.OnlyPassing && i.Status != Passing) && tagged(i.Tags, l.tag) {
			all = append(all, i)
		}
		return true
	})
	a.shuffle(all)
	return a.instances(all, a.door.ttlOf(l.name))
}

func (a *answering) shuffle(all []Instance) {
	a.door.cfg.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// prepared answers for a prepared query.
func (a *answering) prepared(name string) bool {
	p, ok := a.names.Prepared(name)
	if !ok {
		return false
	}
	a.shuffle(p.Instances)
	slices.SortStableFunc(p.Instances, func(x, y Instance) int {
		switch near := strings.EqualFold(x.Node.Name, p.Near); {
		case near == strings.EqualFold(y.Node.Name, p.Near):
			return 0
		case near:
			return -1
		}
		return 1
	})
	ttl := a.door.ttlOf(p.Service)
	if p.TTL != nil {
		ttl = min(*p.TTL, maxTTL)
	}
	return a.instances(p.Instances, ttl)
}

// instances puts instances into the answer in their order, and reports whether there is
// one.
func (a *answering) instances(all []Instance, ttl time.Duration) bool {
	seen := map[string]bool{}
	var names []string
	for i := range all {
		if len(a.msg.Answer) >= maxAnswers {
			break
		}
		if a.qtype == dns.TypeSRV {
			a.located(&all[i], ttl, seen)
		} else {
			names = a.instance(&all[i], ttl, seen, names)
		}
	}
	for _, name := range names {
		if len(a.msg.Answer) == 0 {
			a.alias(name, ttl)
		}
	}
	return len(all) > 0
}

// tagged reports whether tags have one, in whichever case.
func tagged(tags []string, tag string) bool {
	if tag == "" {
		return true
	}
	for _, t := range tags {
		if strings.EqualFold(t, tag) {
			return true
		}
	}
	return false
}

// instance adds the address of an instance, once, or where that is a name adds it to names, of
// what the owner may be an alias: a name has one, and then nothing else.
func (a *answering) instance(i *Instance, ttl time.Duration, seen map[string]bool, names []string) []string {
	at := i.at()
	if strings.EqualFold(dns.Fqdn(at), a.owner) { // it is no alias of itself
		at = i.Node.Address
	}
	if seen[at] {
		return names
	}
	seen[at] = true
	ip, err := netip.ParseAddr(at)
	switch {
	case err == nil:
		a.addressed = true
		a.msg.Answer = append(a.msg.Answer, a.addresses(a.owner, ip, ttl)...)
	case !strings.EqualFold(dns.Fqdn(at), a.owner):
		names = append(names, at)
	}
	if a.addressed {
		return nil
	}
	return names
}

// at is where an instance is.
func (i *Instance) at() string {
	if i.Address != "" {
		return i.Address
	}
	return i.Node.Address
}

// located adds where an instance listens, RFC 2782, with the addresses and the
// metadata of what it names.
func (a *answering) located(i *Instance, ttl time.Duration, seen map[string]bool) {
	d := a.door
	at := i.at()
	target := d.nodeName(i.Node.Name)
	ip, err := netip.ParseAddr(at)
	switch {
	case err != nil && at != "":
		target = dns.Fqdn(at) // also if it is the node's: a target must be no alias
	case err == nil && i.Address != "" && i.Address != i.Node.Address:
		target = hex.EncodeToString(ip.AsSlice()) + ".addr." + d.cfg.Datacenter + "." + d.zone
	}
	if !writable(target) { // the others of its service are found all the same
		return
	}
	weight := i.Passing
	switch i.Status {
	case Passing:
	case Warning:
		weight = i.Warning
	case Critical: // a prepared query ignores what is wrong with it
		weight = 0
	}
	key := target + ":" + strconv.Itoa(i.Port)
	if seen[key] {
		return
	}
	seen[key] = true
	a.msg.Answer = append(a.msg.Answer, &dns.SRV{
		Hdr: header(a.owner, dns.TypeSRV, ttl), Priority: 1, Weight: uint16(min(max(weight, 0), 65535)), //nolint:gosec // in its bounds
		Port: uint16(i.Port), Target: target, //nolint:gosec // a port
	})
	if seen[target] {
		return
	}
	seen[target] = true
	a.msg.Extra = append(a.msg.Extra, a.both(target, at, ttl)...)
	if target == d.nodeName(i.Node.Name) {
		a.msg.Extra = append(a.msg.Extra, texts(target, i.Node.Meta, ttl)...)
	}
}

// addresses is the record of an address, if it was asked for.
func (a *answering) addresses(owner string, ip netip.Addr, ttl time.Duration) []dns.RR {
	if ip = ip.WithZone("").Unmap(); ip.Is4() && a.wants(dns.TypeA) || ip.Is6() && a.wants(dns.TypeAAAA) {
		return []dns.RR{addressRecord(owner, ip, ttl)}
	}
	return nil
}

// both is the record of an address of whichever kind; none of a name.
func (a *answering) both(owner, at string, ttl time.Duration) []dns.RR {
	ip, err := netip.ParseAddr(at)
	if err != nil {
		return nil
	}
	return []dns.RR{addressRecord(owner, ip.WithZone("").Unmap(), ttl)}
}

func addressRecord(owner string, ip netip.Addr, ttl time.Duration) dns.RR {
	if ip.Is4() {
		return &dns.A{Hdr: header(owner, dns.TypeA, ttl), A: ip.AsSlice()}
	}
	return &dns.AAAA{Hdr: header(owner, dns.TypeAAAA, ttl), AAAA: ip.AsSlice()}
}

// alias says that what was asked for has another name. Where that is in the domain
// its addresses follow.
func (a *answering) alias(at string, ttl time.Duration) {
	target := dns.Fqdn(at)
	if !writable(target) || at == "" || a.qtype == dns.TypeTXT || a.followed {
		return
	}
	a.msg.Answer = append(a.msg.Answer, &dns.CNAME{Hdr: header(a.owner, dns.TypeCNAME, ttl), Target: target})
	if a.qtype == dns.TypeCNAME {
		return
	}
	if l := a.door.lookupOf(target); l.kind == node || l.kind == service || l.kind == query || l.kind == address {
		b := *a
		b.owner, b.followed = target, true
		b.look(l)
	}
}

// reverse says whose an address is.
func (a *answering) reverse(ip netip.Addr) bool {
	var names []string
	for _, n := range a.names.NodesAt(ip) {
		names = append(names, a.door.nodeName(n))
	}
	for _, s := range a.names.ServicesAt(ip) {
		names = append(names, escaped(s)+".service."+a.door.cfg.Datacenter+"."+a.door.zone)
	}
	if !a.wants(dns.TypePTR) {
		return len(names) > 0
	}
	for _, n := range names {
		if !writable(n) {
			continue
		}
		a.msg.Answer = append(a.msg.Answer, &dns.PTR{Hdr: header(a.owner, dns.TypePTR, a.door.cfg.NodeTTL), Ptr: n})
	}
	return len(names) > 0
}

// texts are the metadata of a node. A key that begins with rfc1035- stands for its
// value alone, which is a record in a form that RFC 1035 knows.
func texts(owner string, meta []Pair, ttl time.Duration) []dns.RR {
	var out []dns.RR
	for _, p := range meta {
		text := p.Key + "=" + p.Value
		if strings.HasPrefix(strings.ToLower(p.Key), "rfc1035-") {
			text = p.Value
		}
		var parts []string
		for len(text) > maxText {
			parts, text = append(parts, quoted(text[:maxText])), text[maxText:]
		}
		parts = append(parts, quoted(text))
		out = append(out, &dns.TXT{Hdr: header(owner, dns.TypeTXT, ttl), Txt: parts})
	}
	return out
}

// quoted is a text as the library takes it: a backslash begins something there.
func quoted(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }

func header(owner string, rrtype uint16, ttl time.Duration) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: uint32(ttl / time.Second)} //nolint:gosec // at most maxTTL
}

// soa is the domain's.
func (d *Door) soa() dns.RR {
	return &dns.SOA{
		Hdr: header(d.zone, dns.TypeSOA, 0), Ns: "ns." + d.zone, Mbox: "hostmaster." + d.zone,
		Serial: uint32(d.cfg.Now().Unix()), Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minttl: soaMinTTL, //nolint:gosec // it wraps as serials do
	}
}

// writable reports whether a name of the catalog is one of DNS: in a message one that is
// not has nobody get any of it.
func writable(name string) bool {
	var b [maxName]byte
	_, err := dns.PackDomainName(name, b[:], 0, nil, false)
	return err == nil
}

// nodeName is a node's name in the domain.
func (d *Door) nodeName(name string) string {
	return escaped(name) + ".node." + d.cfg.Datacenter + "." + d.zone
}

// escaped is a name of the catalog as text of DNS: dots separate labels.
func escaped(name string) string {
	if !strings.ContainsAny(name, "\\\"();@$ \t") {
		return name
	}
	var b strings.Builder
	for _, c := range []byte(name) {
		if strings.IndexByte("\\\"();@$ \t", c) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// ttlOf is that of a service's records.
func (d *Door) ttlOf(name string) time.Duration {
	if ttl, ok := d.cfg.ServiceTTL[name]; ok {
		return ttl
	}
	for n := len(name); n >= 0; n-- {
		if ttl, ok := d.cfg.ServiceTTL[name[:n]+"*"]; ok {
			return ttl
		}
	}
	return 0
}
