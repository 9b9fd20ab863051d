package health

import "time"

// Limits and defaults of definitions.
const (
	MinInterval    = time.Second
	DefaultTimeout = 10 * time.Second // or the interval if that is shorter
	MaxOutputBytes = 4 << 10          // of an output, and of the body that is read
)

// Key names a check.
type Key struct{ Namespace, Node, ID string }

// Definition says what is run, and how often. One of HTTP, TCP, UDP, GRPC is set.
type Definition struct {
	HTTP             string // URL
	Method           string // "": GET
	Header           []Header
	Body             string
	DisableRedirects bool

	TCP       string // host:port
	TCPUseTLS bool
	UDP       string // host:port

	GRPC       string // host:port, or host:port/service
	GRPCUseTLS bool

	TLSServerName string
	TLSSkipVerify bool

	Interval       time.Duration // from the start of a run to that of the next; at least MinInterval
	Timeout        time.Duration // of a run; 0: DefaultTimeout
	MaxOutputBytes int           // 0, or more than MaxOutputBytes: MaxOutputBytes
	Thresholds
}

// Header is one of the headers of a request.
type Header struct {
	Name   string
	Values []string
}

// interval is that of the definition, or the least there is.
func (d *Definition) interval() time.Duration { return max(d.Interval, MinInterval) }

// timeout is how long one run may take.
func (d *Definition) timeout() time.Duration {
	if d.Timeout > 0 {
		return d.Timeout
	}
	return min(DefaultTimeout, d.interval())
}

// outputBytes is how long an output may be.
func (d *Definition) outputBytes() int {
	if d.MaxOutputBytes <= 0 {
		return MaxOutputBytes
	}
	return min(d.MaxOutputBytes, MaxOutputBytes)
}

// Kind is the way in which a check is run.
type Kind uint8

// The kinds.
const (
	KindNone Kind = iota // not run by a member
	KindHTTP
	KindTCP
	KindUDP
	KindGRPC
	numKinds
)

// String returns the kind's name, as in metrics.
func (k Kind) String() string {
	return [numKinds]string{"none", "http", "tcp", "udp", "grpc"}[k]
}

// Kind is how the check is run.
func (d *Definition) Kind() Kind {
	switch {
	case d.HTTP != "":
		return KindHTTP
	case d.TCP != "":
		return KindTCP
	case d.UDP != "":
		return KindUDP
	case d.GRPC != "":
		return KindGRPC
	}
	return KindNone
}
