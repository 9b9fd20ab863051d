package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/audit"
)

// heardOf is a trail whose records and events a test looks at.
func heardOf(t *testing.T) (tr *trail, records *[]audit.Record, events func() []Event) {
	t.Helper()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	line := newTimeline(func() time.Time { return now })
	tr, err := newTrail(Config{}, newMetrics(), line, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	records = new([]audit.Record)
	tr.denials = newDenials(line, func(r audit.Record) { *records = append(*records, r) }, "agent:guest")
	return tr, records, func() []Event {
		list, _, _ := line.after(0, timelineKept)
		return list
	}
}

func denialAt(at time.Time, principal, address string) audit.Record {
	return audit.Record{At: at, Door: doorNative, Address: address, Principal: principal, Action: "claim", Outcome: audit.Denied, Reason: audit.Permission}
}

// What is denied shows once for a principal at an address, and a minute later how
// often it was since. Ports do not tell attempts apart.
func TestDenialsAreGatheredByMinute(t *testing.T) {
	tr, records, events := heardOf(t)
	at := time.Date(2026, 11, 22, 10, 0, 5, 0, time.UTC)
	for i := range denialRecords + 50 {
		r := denialAt(at, "agent:x", fmt.Sprint("10.0.0.1:", 1000+i))
		if tr.denials.add(&r) != (i < denialRecords) {
			t.Fatalf("denial %d", i)
		}
	}
	if got := events(); len(got) != 1 || got[0].Subject != "agent:x" || !strings.Contains(got[0].Detail, "10.0.0.1") {
		t.Fatalf("at once: %v", got)
	}
	tr.denials.flush(at.Add(time.Minute))
	got := events()
	if len(got) != 2 || !strings.Contains(got[1].Detail, fmt.Sprint(denialRecords+49, " times")) {
		t.Errorf("a minute later: %v", got)
	}
	if n := len(*records); n != 1 || !strings.HasPrefix((*records)[0].Detail, "50 more") {
		t.Errorf("records of the rest: %v", *records)
	}
	tr.denials.flush(at.Add(time.Hour))
	if n := len(events()); n != 2 {
		t.Errorf("%d events after an hour of quiet", n)
	}
}

// A wall clock that was ahead and is put back silences nothing: what a principal is
// denied from then on shows anew, and makes no room for more events.
func TestDenialsAfterTheClockWasPutBack(t *testing.T) {
	tr, records, events := heardOf(t)
	at := time.Date(2026, 11, 22, 10, 0, 5, 0, time.UTC)
	add := func(at time.Time, n int) (recorded int) {
		for range n {
			if r := denialAt(at, "agent:x", "10.0.0.1:5"); tr.denials.add(&r) {
				recorded++
			}
		}
		return recorded
	}
	add(at.AddDate(10, 0, 0), denialRecords+1)
	room := tr.denials.room
	if n := add(at, denialRecords+1); n != denialRecords {
		t.Errorf("%d denials have a record of their own once the clock was put back, want %d", n, denialRecords)
	}
	if got := room - tr.denials.room; got != 2 {
		t.Errorf("%d events were noted when the clock was put back, want 2", got)
	}
	tr.denials.flush(at.Add(time.Minute))
	if got := events(); len(got) != 4 || len(*records) != 2 {
		t.Errorf("a minute later: %v, %v", got, *records)
	}
}

// An attacker with many names and addresses does not push out what else is among the
// events: a day of his takes a sixth of them at the most.
func TestDenialsLeaveRoomForOtherEvents(t *testing.T) {
	tr, _, events := heardOf(t)
	at := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	const minutes, each = 24 * 60, 200
	for m := range minutes {
		for i := range each {
			r := denialAt(at.Add(time.Duration(m)*time.Minute), fmt.Sprint("agent:", m, "-", i), fmt.Sprintf("10.%d.%d.1:5", m%250, i))
			tr.denials.add(&r)
		}
	}
	if n := len(events()); n > timelineKept/6 || n < minutes {
		t.Errorf("%d events, %d are kept", n, timelineKept)
	}
}

// However many names strangers call themselves by, and from wherever they come: what is
// denied to who is known has a record of its own.
func TestStrangersHideNothingOfWhoIsKnown(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 5, 0, time.UTC)
	const many = strangersKept + denialRecords + 1
	for _, tt := range []struct {
		name     string
		denied   func(i int) audit.Record
		recorded int // of many
	}{
		{"names at one address", func(i int) audit.Record {
			return audit.Record{Door: doorJuju, Address: fmt.Sprint("10.0.0.1:", 1000+i), Principal: fmt.Sprint("unit-x-", i), Action: audit.Login, Reason: audit.Identity}
		}, denialRecords},
		{"names in one network", func(i int) audit.Record {
			return audit.Record{Door: doorJuju, Address: fmt.Sprintf("[2001:db8::%x]:1", i), Principal: fmt.Sprint("unit-x-", i), Action: audit.Login, Reason: audit.Guesses}
		}, denialRecords},
		{"names everywhere", func(i int) audit.Record {
			return audit.Record{Door: doorJuju, Address: fmt.Sprintf("[2001:db8:0:%x::1]:1", i), Principal: fmt.Sprint("unit-x-", i), Action: audit.Login, Reason: audit.Identity}
		}, strangersKept + denialRecords},
		{"nobody, in one network", func(i int) audit.Record { return denialAt(at, "anonymous", fmt.Sprintf("[2001:db8::%x]:1", i)) }, denialRecords},
		{"who may be anybody, in one network", func(i int) audit.Record { return denialAt(at, "agent:guest", fmt.Sprintf("[2001:db8::%x]:1", i)) }, denialRecords},
	} {
		tr, records, _ := heardOf(t)
		recorded := 0
		for i := range many {
			r := tt.denied(i)
			r.At, r.Outcome = at, audit.Denied
			if tr.denials.add(&r) {
				recorded++
			}
		}
		if recorded != tt.recorded {
			t.Errorf("%s: %d of %d have a record of their own, want %d", tt.name, recorded, many, tt.recorded)
		}
		known := denialAt(at, "agent:x", "10.0.0.1:5")
		for i := range denialRecords {
			if !tr.denials.add(&known) {
				t.Fatalf("%s: denial %d of who is known has no record", tt.name, i)
			}
		}
		tr.denials.flush(at.Add(time.Minute))
		if len(*records) != 1 || (*records)[0].Principal != "" || !strings.HasPrefix((*records)[0].Detail, fmt.Sprint(many-tt.recorded, " more")) {
			t.Errorf("%s: records of the rest: %v", tt.name, *records)
		}
	}
}

// Who is known may have many names, too: they are told apart up to a number.
func TestDenialsTellPrincipalsApart(t *testing.T) {
	tr, _, _ := heardOf(t)
	at := time.Date(2026, 11, 22, 10, 0, 5, 0, time.UTC)
	const many = principalsKept + denialRecords + 1
	for i := range many {
		r := denialAt(at, fmt.Sprint("agent:", i), "10.0.0.1:5")
		if tr.denials.add(&r) != (i < many-1) {
			t.Fatalf("denial %d", i)
		}
	}
	if n := len(tr.denials.principals.seen); n != principalsKept {
		t.Errorf("%d principals are told apart", n)
	}
	r := denialAt(at, "agent:0", "10.0.0.2:5")
	r.Reason = audit.Identity
	if !tr.denials.add(&r) {
		t.Error("a stranger finds no place because of them")
	}
}

// What is denied is counted under words of closed sets, whatever it is.
func TestDenialsAreCounted(t *testing.T) {
	tr, _, _ := heardOf(t)
	for _, r := range []audit.Record{
		{Door: doorNative, Action: "claim", Reason: audit.Owner},
		{Door: doorJuju, Action: audit.Login, Reason: audit.Identity},
		{Door: doorPeers, Action: "Join", Reason: audit.Permission},
		{Door: "nowhere", Action: "claim", Reason: audit.Owner},
	} {
		r.Outcome = audit.Denied
		tr.note(r)
	}
	for d, want := range map[denial]float64{
		{doorNative, "claim", audit.Owner}: 1, {doorJuju, audit.Login, audit.Identity}: 1, {doorPeers, otherAction, audit.Permission}: 1,
		{doorNative, otherAction, audit.Permission}: 0,
	} {
		if got := valueOf(tr.counts[d]); got != want {
			t.Errorf("%v: %v, want %v", d, got, want)
		}
	}
}
