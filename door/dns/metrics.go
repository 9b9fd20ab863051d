package dns

import (
	"sync/atomic"

	"github.com/miekg/dns"
)

// Types of questions and codes of answers, as metrics know them; the last of each are
// all others.
var (
	typeNames = [...]string{"A", "AAAA", "SRV", "PTR", "TXT", "SOA", "NS", "CNAME", "ANY", "other"}
	typeCodes = [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR, dns.TypeTXT, dns.TypeSOA, dns.TypeNS, dns.TypeCNAME, dns.TypeANY}
	codeNames = [...]string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "other"}
)

// counts are the door's numbers, written from any goroutine.
type counts struct {
	queries   [len(typeNames)][len(codeNames)]atomic.Uint64
	limited   [numVerdicts]atomic.Uint64
	malformed atomic.Uint64
	bytes     atomic.Uint64
}

func (c *counts) answered(qtype uint16, rcode int) {
	t := 0
	for t < len(typeCodes) && typeCodes[t] != qtype {
		t++
	}
	c.queries[t][min(max(rcode, 0), len(codeNames)-1)].Add(1)
}

// QueryCount is how many questions of a type were answered with a code.
type QueryCount struct {
	Type, Code string
	N          uint64
}

// Stats are the door's numbers; labels are from closed sets and all there from the
// start.
type Stats struct {
	Queries   []QueryCount
	Slipped   uint64 // told to come by TCP, because their network asked too much
	Dropped   uint64 // not answered for that
	Malformed uint64
	Bytes     uint64 // of answers
}

// Stats returns the numbers of the moment.
func (d *Door) Stats() Stats {
	c := &d.counts
	s := Stats{Slipped: c.limited[slip].Load(), Dropped: c.limited[drop].Load(), Malformed: c.malformed.Load(), Bytes: c.bytes.Load()}
	for t, name := range typeNames {
		for r, code := range codeNames {
			s.Queries = append(s.Queries, QueryCount{name, code, c.queries[t][r].Load()})
		}
	}
	return s
}
