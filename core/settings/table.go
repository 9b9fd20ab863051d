package settings

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Key is a setting, for whoever reads its value.
type Key uint8

// The settings. Their names stand in the log, these numbers do not.
const (
	KVQuotaBytes Key = iota
	QuotaMode
	QuotaSessions
	QuotaLeases
	QuotaPlaces
	QuotaKeys
	QuotaKeyBytes
	QuotaRegistrations
	QuotaTableBytes
	QuotaNamespaceLeases
	QuotaNamespacePlaces
	QuotaNamespaceKeys
	QuotaNamespaceKeyBytes
	QuotaNamespaceRegistrations
	QuotaNamespaceTableBytes
	QuotaStreams
	QuotaWatches
	QuotaJujuConnections
	QuotaSourceJujuConnections
	QuotaConnections
	AdmissionMode
	AdmissionTarget
	AdmissionLeast
	AdmissionMost
	AdmissionRetry
	AdmissionMostRetry
	LoginGuesses
	LoginGuessEvery
	LoginAddressGuesses
	LoginAddressGuessEvery
	StrangersUnproven
	StrangersFirstByte
	StrangersFailing
	KeyRetention
	numKeys
)

// Unit says what a value counts, and so how it is written.
type Unit uint8

// The units.
const (
	Count  Unit = iota // a number
	Bytes              // a number, KiB, MiB, GiB and TiB may stand behind it
	Millis             // a duration, as 1m30s
	Modes              // off, observe, enforce
)

var unitNames = [...]string{"count", "bytes", "duration", "mode"}

// String returns the unit's name.
func (u Unit) String() string { return unitNames[u] }

// Subject is what a setting may be given for each of, behind an @.
type Subject uint8

// The subjects.
const (
	Nobody Subject = iota
	Principals
	Namespaces
	Sources // addresses that clients connect from; of IPv6 the first of a /64
)

var subjectNames = [...]string{"", "principal", "namespace", "source address"}

// String returns the subject's name.
func (s Subject) String() string { return subjectNames[s] }

// Declaration says what a setting is. All of them act at once, on every member,
// unless Does says otherwise.
type Declaration struct {
	Name     string
	Unit     Unit
	Min, Max int64
	Default  int64
	Zero     string  // what 0 means; "": nothing of its own
	For      Subject // whom it may be given for
	Schema   uint32  // the [core.SchemaVersion] that brought it, which its commands name
	Does     string

	quota func(*Values) *core.Quota // that it is; nil: it is none
}

const (
	mib = 1 << 20
	gib = 1 << 30
	tib = 1 << 40
)

// table has the settings by key.
var table = [numKeys]Declaration{
	KVQuotaBytes: {
		Name: "kv.quota-bytes", Unit: Bytes, Min: 1, Max: tib, Default: 2 * gib, Schema: 5,
		Does: "what all keys and values cost together, 160 bytes for each entry among it, beyond which puts and locks that make them grow are refused; a warning and an event from 80 %; deleting always works",
	},
	QuotaMode: {
		Name: "quota.mode", Unit: Modes, Min: int64(core.Off), Max: int64(core.Enforce), Default: int64(core.Enforce), Schema: 5,
		Does: "what becomes of what is over a quota: nothing, it is counted and executed, or it is counted and refused; operators are exempt",
	},
	QuotaSessions:               quota(core.Sessions, Principals, 10_000, "sessions that one principal has opened"),
	QuotaLeases:                 quota(core.Leases, Principals, 100_000, "leases that one principal holds, through all its sessions, and its places in queues"),
	QuotaPlaces:                 quota(core.Places, Principals, 100_000, "places in queues that one principal has"),
	QuotaKeys:                   quota(core.Keys, Principals, 500_000, "keys that one principal was the last to store, and those under the delay of a lock of such a one"),
	QuotaKeyBytes:               quota(core.KeyBytes, Principals, 512*mib, "what those cost"),
	QuotaRegistrations:          catalogQuota(Principals, 200_000, "nodes, services and checks that one principal was the last to register; each 4 KiB of what one says count as another"),
	QuotaTableBytes:             tableQuota(Principals, 8*gib, "what the rows of the databases cost together that one principal has defined"),
	QuotaNamespaceLeases:        quota(core.Leases, Namespaces, 0, "leases of one namespace that are held"),
	QuotaNamespacePlaces:        quota(core.Places, Namespaces, 0, "places in queues of one namespace"),
	QuotaNamespaceKeys:          quota(core.Keys, Namespaces, 0, "keys of one namespace, and those under the delay of a lock"),
	QuotaNamespaceKeyBytes:      quota(core.KeyBytes, Namespaces, 0, "what those cost"),
	QuotaNamespaceRegistrations: catalogQuota(Namespaces, 0, "nodes, services and checks of one namespace, counted alike"),
	QuotaNamespaceTableBytes:    tableQuota(Namespaces, 0, "what the rows of the databases of one namespace cost together"),
	QuotaStreams:                openQuota(OpenStreams, Principals, 10_000, 5, "streams of the native API that one principal has to one member, each with up to 100 watches"),
	QuotaWatches: openQuota(OpenWatches, Principals, 100_000, 6,
		"watches, waits for a release and reads that wait which one principal has at one member, by the native API and by Consul's, and monitors and transactions that wait of Open vSwitch's"),
	QuotaJujuConnections: openQuota(OpenAgents, Principals, 100, 6,
		"connections to one member by which one of Juju's agents has logged in to one model"),
	QuotaSourceJujuConnections: openQuota(OpenAgentsOfOne, Sources, 0, 6,
		"connections of Juju's agents that come to one member from one address, of IPv6 from one /64, and have logged in"),
	QuotaConnections: openQuota(OpenConnections, Principals, 10_000, 11,
		"connections that one principal has to one listener of a member for clients, save for those of Juju's agents and of clients of Open vSwitch's without a certificate: to be less than --max-connections"),
	AdmissionMode: {
		Name: "admission.mode", Unit: Modes, Min: int64(core.Off), Max: int64(core.Enforce), Default: int64(core.Enforce), Schema: 5,
		Does: "what becomes of work that a lane has no room for: it is let in, it is let in and counted as refused, or it is refused",
	},
	AdmissionTarget: {
		Name: "admission.target", Unit: Millis, Min: 1, Max: (10 * time.Second).Milliseconds(), Default: 50, Schema: 8,
		Does: "how long work of the lanes that are refused first may wait; that of each later rank half of this longer, extensions 3.5 times as long. Where extensions wait for more than half of it on average, or what is committed for more than it until a member has applied it, all lanes before theirs have to shrink",
	},
	AdmissionLeast: {
		Name: "admission.least", Min: 1, Max: 1024, Default: 16, Schema: 8,
		Does: "operations that a lane may have under way on a member, however long they wait",
	},
	AdmissionMost: {
		Name: "admission.most", Min: 1024, Max: 1 << 20, Default: 1 << 16, Schema: 8,
		Does: "operations that a lane may have under way on a member, however short they wait",
	},
	AdmissionRetry: {
		Name: "admission.retry", Unit: Millis, Min: 1, Max: 1000, Default: 250, Schema: 8,
		Does: "when who is refused is to come back, times how many times as much came as was let in; spread by half of it either way",
	},
	AdmissionMostRetry: {
		Name: "admission.most-retry", Unit: Millis, Min: 1000, Max: time.Hour.Milliseconds(), Default: 2000, Schema: 8,
		Does: "when at the latest, before it is spread",
	},
	LoginGuesses: {
		Name: "logins.guesses", Min: 1, Max: 1000, Default: 5, Schema: 6,
		Does: "wrong passwords of one of Juju's agents that may come from one address at once, before whoever is there waits; its owner elsewhere does not",
	},
	LoginGuessEvery: millis("logins.guess-every", 100*time.Millisecond, time.Hour, 30*time.Second, "how long it takes until one of them is forgiven"),
	LoginAddressGuesses: {
		Name: "logins.address-guesses", Min: 1, Max: 100_000, Default: 50, Schema: 6,
		Does: "wrong passwords of all of them that may come from one address at once",
	},
	LoginAddressGuessEvery: millis("logins.address-guess-every", 10*time.Millisecond, time.Hour, 2*time.Second, "how long it takes until one of them is forgiven"),
	StrangersUnproven: {
		Name: "strangers.unproven", Min: 16, Max: 100_000, Default: 512, Schema: 6,
		Does: "connections at each listener for clients that are served before they have shown who they are, three quarters of them for one address; others wait",
	},
	StrangersFirstByte: millis("strangers.first-byte", time.Second, 10*time.Minute, 10*time.Second, "how long a connection may be silent before its first byte"),
	StrangersFailing: {
		Name: "strangers.failing", Min: 1, Max: 100_000, Default: 50, Schema: 10,
		Does: "connections a second, for each processor of a member, that are served and prove nothing, of addresses from which such came in the last ten seconds; four without TLS count as one; others of these addresses wait",
	},
	KeyRetention: {
		Name: "idempotency.retention", Unit: Millis, Min: time.Minute.Milliseconds(), Max: (24 * time.Hour).Milliseconds(), Default: (10 * time.Minute).Milliseconds(), Schema: 5,
		Does: "how long the results of calls with an idempotency key are kept, 100,000 at most",
	},
}

// quota declares one that is given for each of a subject.
func quota(of core.Counted, subject Subject, each int64, does string) Declaration {
	d := Declaration{
		Name: core.ScopePrincipal.Setting(of), Max: tib, Default: each, Zero: "no limit", For: subject, Schema: 5, Does: does,
		quota: func(v *Values) *core.Quota { return &v.terms.Principals[of] },
	}
	if subject == Namespaces {
		d.Name, d.quota = core.ScopeNamespace.Setting(of), func(v *Values) *core.Quota { return &v.terms.Namespaces[of] }
	}
	if of == core.KeyBytes || of == core.TableBytes {
		d.Unit = Bytes
	}
	return d
}

// millis declares a duration.
func millis(name string, least, most, normal time.Duration, does string) Declaration {
	return Declaration{
		Name: name, Unit: Millis, Min: least.Milliseconds(), Max: most.Milliseconds(), Default: normal.Milliseconds(), Schema: 6, Does: does,
	}
}

// catalogQuota declares one of what came with the catalog.
func catalogQuota(subject Subject, each int64, does string) Declaration {
	d := quota(core.Registrations, subject, each, does)
	d.Schema = 6
	return d
}

// tableQuota declares one of what came with tables.
func tableQuota(subject Subject, each int64, does string) Declaration {
	d := quota(core.TableBytes, subject, each, does)
	d.Schema = 7
	return d
}

// All returns the declarations, in the order in which people read them.
func All() []Declaration { return slices.Clone(table[:]) }

// Declared returns what a name, perhaps with an @ and for whom, is declared to be.
func Declared(name string) (Declaration, bool) {
	k, ok := keyOf(name)
	if !ok {
		return Declaration{}, false
	}
	return table[k], true
}

func keyOf(name string) (Key, bool) {
	declared, _ := Split(name)
	i := slices.IndexFunc(table[:], func(d Declaration) bool { return d.Name == declared })
	return Key(max(i, 0)), i >= 0
}

// check returns an Invalid or NotFound error unless a setting can have the name.
func check(name string) (*Declaration, *incumbent.Error) {
	k, ok := keyOf(name)
	if !ok {
		return nil, incumbent.Errorf(incumbent.NotFound, "there is no setting %.100q", name).WithHint("'incumbent config get' lists them")
	}
	d := &table[k]
	_, pattern, given := strings.Cut(name, "@")
	if !given {
		return d, nil
	}
	if d.For == Nobody {
		return nil, incumbent.Errorf(incumbent.Invalid, "setting %s is one for the whole cluster: nothing stands behind an @", d.Name)
	}
	text := strings.TrimSuffix(pattern, "*")
	at, _ := incumbent.PlainText(text)
	if pattern == "" || len(pattern) > MaxPatternBytes || at >= 0 || !utf8.ValidString(text) || strings.Contains(text, "*") {
		return nil, incumbent.Errorf(incumbent.Invalid,
			"setting %s: behind the @ stands a %v, or what several begin with and *: at most %d bytes without white space, control or invisible characters", d.Name, d.For, MaxPatternBytes)
	}
	return d, nil
}

// checkValue returns an Invalid error unless the setting can have the value.
func (d *Declaration) checkValue(v int64) *incumbent.Error {
	if v >= d.Min && v <= d.Max {
		return nil
	}
	return incumbent.Errorf(incumbent.Invalid, "setting %s: %s is outside %s to %s", d.Name, d.Format(v), d.Format(d.Min), d.Format(d.Max))
}

// Format writes a value as people and [Declaration.Parse] read it.
func (d *Declaration) Format(v int64) string {
	switch d.Unit {
	case Bytes:
		return formatBytes(v)
	case Millis:
		return (time.Duration(v) * time.Millisecond).String()
	case Modes:
		if v >= 0 && v < int64(len(modeNames)) {
			return modeNames[v]
		}
	}
	return strconv.FormatInt(v, 10)
}

var modeNames = [...]string{core.Off: "off", core.Observe: "observe", core.Enforce: "enforce"}

var byteUnits = []struct {
	name string
	size int64
}{{"TiB", tib}, {"GiB", gib}, {"MiB", mib}, {"KiB", 1 << 10}}

func formatBytes(v int64) string {
	for _, u := range byteUnits {
		if v >= u.size && v%u.size == 0 {
			return strconv.FormatInt(v/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(v, 10)
}

// Parse reads a value, within the bounds. The error is Invalid.
func (d *Declaration) Parse(text string) (int64, error) {
	v, ok := d.parse(text)
	if !ok {
		return 0, incumbent.Errorf(incumbent.Invalid, "setting %s: %.100q is no %s", d.Name, text, d.form())
	}
	if err := d.checkValue(v); err != nil {
		return 0, err
	}
	return v, nil
}

func (d *Declaration) parse(text string) (int64, bool) {
	switch d.Unit {
	case Millis:
		t, err := time.ParseDuration(text)
		return t.Milliseconds(), err == nil && t%time.Millisecond == 0
	case Modes:
		i := slices.Index(modeNames[:], text)
		return int64(i), i >= 0
	case Bytes:
		return ParseBytes(text)
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil
}

// ParseBytes reads a number of bytes, as 1048576 or 1MiB.
func ParseBytes(text string) (v int64, ok bool) {
	for _, u := range byteUnits {
		if n, is := strings.CutSuffix(text, u.name); is {
			v, err := strconv.ParseInt(n, 10, 64)
			return v * u.size, err == nil && v >= 0 && v <= math.MaxInt64/u.size
		}
	}
	v, err := strconv.ParseInt(text, 10, 64)
	return v, err == nil
}

// form says how a value is written.
func (d *Declaration) form() string {
	switch d.Unit {
	case Bytes:
		return "number of bytes, as 1048576 or 1MiB"
	case Millis:
		return "duration in whole milliseconds, as 1m30s"
	case Modes:
		return "mode: " + strings.Join(modeNames[:], ", ")
	}
	return "number"
}

// Bounds says what values the setting may have.
func (d *Declaration) Bounds() string {
	if d.Unit == Modes {
		return strings.Join(modeNames[:], ", ")
	}
	text := fmt.Sprintf("%s to %s", d.Format(d.Min), d.Format(d.Max))
	if d.Zero != "" {
		text += "; 0: " + d.Zero
	}
	return text
}
