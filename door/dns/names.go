package dns

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Names is the catalog at one moment. It is asked for names in lower case.
type Names interface {
	// Node returns a node by its name.
	Node(name string) (Node, bool)
	// Instances calls fn with the instances of a service until it returns false.
	Instances(service string, fn func(Instance) bool)
	// Prepared returns what the prepared query of a name finds.
	Prepared(name string) (Prepared, bool)
	// Servers are the nodes that answer for the domain: the members.
	Servers() []Node
	// NodesAt and ServicesAt are the names of those that have an address.
	NodesAt(ip netip.Addr) []string
	ServicesAt(ip netip.Addr) []string
}

// Node is a node of the catalog.
type Node struct {
	Name    string
	Address string // IP, or a name
	Meta    []Pair
}

// Pair is a key of metadata with its value.
type Pair struct{ Key, Value string }

// Instance is one instance of a service.
type Instance struct {
	Node    Node
	Address string // "": the node's
	Port    int
	Tags    []string
	Status  Status
	Passing int // weights
	Warning int
}

// Prepared is what a prepared query found.
type Prepared struct {
	Service   string // that it is for
	Instances []Instance
	Near      string         // the node whose instances come first; "": they come in any order
	TTL       *time.Duration // nil: that of the service
}

// Status is the worst of an instance's checks and its node's.
type Status uint8

// The statuses.
const (
	Passing Status = iota
	Warning
	Critical
)

// kind is what a name asks for.
type kind uint8

const (
	apex    kind = iota // the domain itself
	between             // a name that others stand below
	service
	node
	query
	address
	reverse
	unknown // of the domain, and nothing
	foreign // not of the domain
)

// lookup is what a name means.
type lookup struct {
	kind kind
	name string // of the service, node or prepared query
	tag  string
	ip   netip.Addr // of address and reverse
}

// lookupOf reads a name, which is fully qualified.
//
//	[tag.]NAME.service[.DC[.dc]].DOMAIN      _NAME._TAG[.service][.DC[.dc]].DOMAIN
//	NAME.node[.DC[.dc]].DOMAIN               HEX.addr[.DC[.dc]].DOMAIN
//	NAME.query[.DC[.dc]].DOMAIN              _NAME._tcp.query[.DC[.dc]].DOMAIN
func (d *Door) lookupOf(name string) lookup {
	name = strings.ToLower(name)
	if ip, ok := reversed(name); ok {
		return lookup{kind: reverse, ip: ip}
	}
	if name == d.zone {
		return lookup{kind: apex}
	}
	below, ok := strings.CutSuffix(name, "."+d.zone)
	if !ok {
		return lookup{kind: foreign}
	}
	labels := dns.SplitDomainName(below)
	for i, l := range labels {
		labels[i] = unescaped(l)
	}
	labels, what, ok := d.place(labels)
	switch {
	case !ok:
		return lookup{kind: unknown}
	case len(labels) == 0:
		return lookup{kind: between}
	}
	return lookupIn(labels, what)
}

// place takes the kind and the datacenter from the end of a name. They are not there
// where the name says by underscores that it is a service's.
func (d *Door) place(labels []string) (rest []string, what string, ok bool) {
	n := len(labels)
	at := func(i int) string {
		if n < i {
			return ""
		}
		return labels[n-i]
	}
	ours := func(dc string) bool { return dc == d.cfg.Datacenter }
	underscored := n >= 2 && strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_")
	switch {
	case isKind(at(1)):
		return labels[:n-1], at(1), true
	case isKind(at(2)):
		return labels[:n-2], at(2), ours(at(1))
	case at(1) == "dc" && isKind(at(3)):
		return labels[:n-3], at(3), ours(at(2))
	case underscored && n == 2:
		return labels, "service", true
	case underscored && n == 3:
		return labels[:2], "service", ours(at(1))
	case underscored && n == 4 && at(1) == "dc":
		return labels[:2], "service", ours(at(2))
	case n == 1 && (ours(at(1)) || at(1) == "dc"), n == 2 && at(1) == "dc" && ours(at(2)):
		return nil, "", true
	}
	return nil, "", false
}

func isKind(label string) bool {
	return label == "service" || label == "node" || label == "addr" || label == "query"
}

// lookupIn reads what stands before the kind: at least one label.
func lookupIn(labels []string, what string) lookup {
	n := len(labels)
	underscored := n == 2 && strings.HasPrefix(labels[0], "_") && strings.HasPrefix(labels[1], "_")
	switch what {
	case "query":
		if underscored {
			labels = []string{labels[0][1:]}
		}
		return lookup{kind: query, name: strings.Join(labels, ".")}
	case "node":
		return lookup{kind: node, name: strings.Join(labels, ".")}
	case "addr":
		if ip, ok := spelled(labels); ok {
			return lookup{kind: address, ip: ip}
		}
		return lookup{kind: unknown}
	}
	if underscored {
		tag := labels[1][1:]
		if tag == "tcp" { // RFC 2782 wants a protocol there; of services it says nothing
			tag = ""
		}
		return lookup{kind: service, name: labels[0][1:], tag: tag}
	}
	return lookup{kind: service, name: labels[n-1], tag: strings.Join(labels[:n-1], ".")}
}

// spelled is the address that a name below addr spells in hexadecimal digits.
func spelled(labels []string) (netip.Addr, bool) {
	if len(labels) != 1 {
		return netip.Addr{}, false
	}
	b, err := hex.DecodeString(labels[0])
	if err != nil {
		return netip.Addr{}, false
	}
	ip, ok := netip.AddrFromSlice(b)
	return ip, ok
}

// reversed is the address of a name below in-addr.arpa or ip6.arpa, RFC 1035 and
// RFC 3596.
func reversed(name string) (netip.Addr, bool) {
	if below, ok := strings.CutSuffix(name, ".in-addr.arpa."); ok {
		l := strings.Split(below, ".")
		if len(l) != 4 {
			return netip.Addr{}, false
		}
		ip, err := netip.ParseAddr(l[3] + "." + l[2] + "." + l[1] + "." + l[0])
		return ip, err == nil
	}
	below, ok := strings.CutSuffix(name, ".ip6.arpa.")
	if !ok || len(below) != 63 {
		return netip.Addr{}, false
	}
	digits := make([]byte, 0, 32)
	for i := 62; i >= 0; i -= 2 {
		if i > 0 && below[i-1] != '.' {
			return netip.Addr{}, false
		}
		digits = append(digits, below[i])
	}
	return spelled([]string{string(digits)})
}

// unescaped is a label as its bytes: in text, what is special has a backslash
// before it, and what cannot be shown is three digits.
func unescaped(label string) string {
	if !strings.Contains(label, `\`) {
		return label
	}
	var b strings.Builder
	for i := 0; i < len(label); i++ {
		switch c := label[i]; {
		case c != '\\' || i+1 == len(label):
			b.WriteByte(c)
		case i+3 < len(label) && isDigit(label[i+1]) && isDigit(label[i+2]) && isDigit(label[i+3]):
			b.WriteByte((label[i+1]-'0')*100 + (label[i+2]-'0')*10 + label[i+3] - '0')
			i += 3
		default:
			i++
			b.WriteByte(label[i])
		}
	}
	return b.String()
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
