package dns

import (
	"sort"

	"github.com/miekg/dns"
)

// trim leaves the first records of an answer, most of them or all if it is negative.
// It is no truncation: they were put into a random order, and who asks again gets
// others.
func trim(m *dns.Msg, most int) {
	if most >= 0 && len(m.Answer) > most && m.Answer[0].Header().Rrtype != dns.TypeCNAME {
		keep(m, m.Answer, m.Extra, most)
	}
}

// fit leaves as many records of an answer as fit into so many bytes, and says that it
// is truncated if any had to go.
func fit(m *dns.Msg, size int) {
	if m.Len() <= size {
		return
	}
	answer, extra := m.Answer, m.Extra
	n := sort.Search(len(answer), func(n int) bool {
		keep(m, answer, extra, n+1)
		return m.Len() > size
	})
	keep(m, answer, extra, n)
	m.Truncated = m.Truncated || n < len(answer)
	if m.Len() > size { // the addition alone is too long
		m.Extra = options(extra)
		m.Truncated = true
	}
	if m.Len() > size {
		m.Answer, m.Ns = nil, nil
	}
}

// keep leaves the first n records of an answer, and of the additional ones those that
// they name.
func keep(m *dns.Msg, answer, extra []dns.RR, n int) {
	m.Answer = answer[:n]
	m.Extra = extra
	if n == len(answer) {
		return
	}
	named := make(map[string]bool, n)
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.SRV:
			named[rr.Target] = true
		case *dns.NS:
			named[rr.Ns] = true
		}
	}
	m.Extra = nil
	for _, rr := range extra {
		if rr.Header().Rrtype == dns.TypeOPT || named[rr.Header().Name] {
			m.Extra = append(m.Extra, rr)
		}
	}
}

// options are the additional records that are about the message itself.
func options(extra []dns.RR) (out []dns.RR) {
	for _, rr := range extra {
		if rr.Header().Rrtype == dns.TypeOPT {
			out = append(out, rr)
		}
	}
	return out
}
