package health

import (
	"encoding/json"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Limits and defaults of definitions.
const (
	MinInterval    = time.Second
	MaxInterval    = 24 * time.Hour // and of a timeout, as it is written
	DefaultTimeout = 10 * time.Second
	MaxTimeout     = time.Minute // however long a timeout is written: services that hang hold the places of all others
	MaxOutputBytes = 4 << 10     // of an output, and of the body that is read
)

// Key names a check.
type Key struct{ Namespace, Node, ID string }

// Definition says what is run, and how often. One of HTTP, TCP, UDP, GRPC, H2Ping is set,
// or what it is an alias of.
type Definition struct {
	HTTP             string // URL
	Method           string // "": GET
	Header           map[string][]string
	Body             string
	DisableRedirects bool

	TCP       string // host:port
	TCPUseTLS bool
	UDP       string // host:port

	GRPC       string // host:port, or host:port/service
	GRPCUseTLS bool

	H2Ping       string // host:port
	H2PingUseTLS bool

	// An alias is as bad as the worst check of the service with an id, or of the node alone.
	AliasNode    string // "": the check's own
	AliasService string

	TLSServerName string
	TLSSkipVerify bool

	Interval       time.Duration // from the start of a run to that of the next; at least MinInterval
	Timeout        time.Duration // of a run; 0: DefaultTimeout; more than MaxTimeout: that
	MaxOutputBytes int           // 0, or more than MaxOutputBytes: MaxOutputBytes
	Thresholds
}

// interval is that of the definition, or the least there is.
func (d *Definition) interval() time.Duration { return max(d.Interval, MinInterval) }

// timeout is how long one run may take.
func (d *Definition) timeout() time.Duration {
	if d.Timeout > 0 {
		return min(d.Timeout, MaxTimeout)
	}
	return DefaultTimeout
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
	KindH2Ping
	KindAlias
	numKinds
)

// String returns the kind's name, as in metrics.
func (k Kind) String() string {
	return [numKinds]string{"none", "http", "tcp", "udp", "grpc", "h2ping", "alias"}[k]
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
	case d.H2Ping != "":
		return KindH2Ping
	case d.AliasNode != "" || d.AliasService != "":
		return KindAlias
	}
	return KindNone
}

// stored is a definition as a check's record has it: JSON with the names that clients
// know.
type stored struct {
	Interval               string              `json:",omitempty"`
	Timeout                string              `json:",omitempty"`
	HTTP                   string              `json:",omitempty"`
	Method                 string              `json:",omitempty"`
	Header                 map[string][]string `json:",omitempty"`
	Body                   string              `json:",omitempty"`
	DisableRedirects       bool                `json:",omitempty"`
	TLSServerName          string              `json:",omitempty"`
	TLSSkipVerify          bool                `json:",omitempty"`
	TCP                    string              `json:",omitempty"`
	TCPUseTLS              bool                `json:",omitempty"`
	UDP                    string              `json:",omitempty"`
	GRPC                   string              `json:",omitempty"`
	GRPCUseTLS             bool                `json:",omitempty"`
	H2PING                 string              `json:",omitempty"`
	H2PingUseTLS           bool                `json:",omitempty"`
	AliasNode              string              `json:",omitempty"`
	AliasService           string              `json:",omitempty"`
	OutputMaxSize          int                 `json:",omitempty"`
	SuccessBeforePassing   int                 `json:",omitempty"`
	FailuresBeforeWarning  int                 `json:",omitempty"`
	FailuresBeforeCritical int                 `json:",omitempty"`
}

// Encode returns the definition as a check's record has it.
func (d *Definition) Encode() []byte {
	s := stored{
		HTTP: d.HTTP, Method: d.Method, Header: d.Header, Body: d.Body, DisableRedirects: d.DisableRedirects,
		TLSServerName: d.TLSServerName, TLSSkipVerify: d.TLSSkipVerify, TCP: d.TCP, TCPUseTLS: d.TCPUseTLS, UDP: d.UDP, GRPC: d.GRPC, GRPCUseTLS: d.GRPCUseTLS,
		H2PING: d.H2Ping, H2PingUseTLS: d.H2PingUseTLS, AliasNode: d.AliasNode, AliasService: d.AliasService,
		OutputMaxSize: d.MaxOutputBytes, SuccessBeforePassing: d.SuccessBeforePassing,
		FailuresBeforeWarning: d.FailuresBeforeWarning, FailuresBeforeCritical: d.FailuresBeforeCritical,
	}
	if d.Interval != 0 {
		s.Interval = d.Interval.String()
	}
	if d.Timeout != 0 {
		s.Timeout = d.Timeout.String()
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // texts and numbers
	}
	return b
}

// Parse reads what Encode returned. What else the JSON says is left out. The error is
// Invalid.
func Parse(b []byte) (Definition, error) {
	var s stored
	if err := json.Unmarshal(b, &s); err != nil {
		return Definition{}, incumbent.Errorf(incumbent.Invalid, "definition of a check: %w", err)
	}
	d := Definition{
		HTTP: s.HTTP, Method: s.Method, Header: s.Header, Body: s.Body, DisableRedirects: s.DisableRedirects,
		TLSServerName: s.TLSServerName, TLSSkipVerify: s.TLSSkipVerify, TCP: s.TCP, TCPUseTLS: s.TCPUseTLS, UDP: s.UDP, GRPC: s.GRPC, GRPCUseTLS: s.GRPCUseTLS,
		H2Ping: s.H2PING, H2PingUseTLS: s.H2PingUseTLS, AliasNode: s.AliasNode, AliasService: s.AliasService,
		MaxOutputBytes: s.OutputMaxSize,
		Thresholds:     Thresholds{s.SuccessBeforePassing, s.FailuresBeforeWarning, s.FailuresBeforeCritical},
	}
	var err error
	if d.Interval, err = duration(s.Interval); err == nil {
		d.Timeout, err = duration(s.Timeout)
	}
	return d, err
}

// duration reads one that may be left out.
func duration(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, incumbent.Errorf(incumbent.Invalid, "definition of a check: %w", err)
	}
	return d, nil
}

// Validate returns an Invalid error if the check can never be run as it says.
func (d *Definition) Validate() error {
	var err error
	switch d.Kind() {
	case KindNone, numKinds:
		return incumbent.Errorf(incumbent.Invalid, "the check says nothing that could be run")
	case KindHTTP:
		var u *url.URL
		if u, err = url.Parse(d.HTTP); err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return incumbent.Errorf(incumbent.Invalid, "%q is no URL of HTTP", d.HTTP)
		}
	case KindTCP:
		_, _, err = net.SplitHostPort(d.TCP)
	case KindUDP:
		_, _, err = net.SplitHostPort(d.UDP)
	case KindGRPC:
		target, _, _ := strings.Cut(d.GRPC, "/")
		_, _, err = net.SplitHostPort(target)
	case KindH2Ping:
		_, _, err = net.SplitHostPort(d.H2Ping)
	case KindAlias:
	}
	switch {
	case err != nil:
		return incumbent.Errorf(incumbent.Invalid, "where the check connects to: %w", err)
	case d.Interval <= 0 && d.Kind() != KindAlias || d.Interval < 0 || d.Interval > MaxInterval:
		return incumbent.Errorf(incumbent.Invalid, "an interval of %v is outside %v to %v", d.Interval, MinInterval, MaxInterval)
	case d.Timeout < 0 || d.Timeout > MaxInterval:
		return incumbent.Errorf(incumbent.Invalid, "a timeout of %v is outside 0s to %v", d.Timeout, MaxInterval)
	}
	return nil
}
