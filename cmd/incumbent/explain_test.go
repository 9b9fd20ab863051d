package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func TestExplain(t *testing.T) {
	name := &apiv1.LeaseName{Namespace: "default", Model: "default", Name: "db"}
	const at = 1_700_000_000_000
	for _, c := range []struct {
		what  string
		lease *apiv1.Lease
		want  []string
	}{
		{"free, never handed over", &apiv1.Lease{Name: name}, []string{"db is free."}},
		{
			"held without a session",
			&apiv1.Lease{Name: name, Holder: "a", Token: 7, TtlMs: 15000, ExpiresInMs: 14960, SinceUnixMs: at, Door: "native", Address: "10.0.0.1:5", Principal: "agent:a", Extends: 3, LastExtendMsAgo: 540},
			[]string{
				"db is held by a with token 7, since 2023-11-14T22:13:20.000Z.",
				"It was taken from 10.0.0.1:5 (native) as agent:a.",
				"Its ttl is 15s; without an extension it is free in 15s. Extended 3 times since this leader leads, last 500ms ago.",
			},
		},
		{
			"held with a session, pinned, offered, revoked, waited for",
			&apiv1.Lease{
				Name: name, Holder: "a", Token: 7, Session: "s1", TtlMs: 5000, SinceUnixMs: at, Door: "native", Offered: true, Revoking: true,
				Pins: []string{"p", "q"}, PreviousHolder: "z", LastExtendMsAgo: -1,
				Queue:   []*apiv1.Waiter{{Holder: "b", Session: "s2", SinceIndex: 9}, {Holder: "c", Session: "s3", SinceIndex: 10}},
				History: []*apiv1.LeaseChange{{What: "expired", Holder: "z", LateMs: 510, Index: 6, AtUnixMs: at}, {What: "offered", Holder: "a", Index: 7}},
			},
			[]string{
				"db is held by a with token 7, since 2023-11-14T22:13:20.000Z.",
				"It was taken from native.",
				"It lives as long as session s1 (ttl 5s). Extended 0 times since this leader leads.",
				"It was handed over: a holds it from its first extension on, of which it is said here a second later.",
				"It is being revoked: extensions are refused, and it is free when its deadline passes.",
				"It cannot expire while pinned by p, q.",
				"Before, z held it.",
				"It last changed hands at index 6, 2023-11-14T22:13:20.000Z: z did not extend it; it was freed 510ms after its deadline.",
				"Waiting, place 1: b (session s2, since index 9).",
				"Waiting, place 2: c (session s3, since index 10).",
			},
		},
	} {
		if diff := cmp.Diff(c.want, explain(c.lease)); diff != "" {
			t.Errorf("%s:\n%s", c.what, diff)
		}
	}
}

func TestWhyItChangedHands(t *testing.T) {
	for _, c := range []struct {
		change *apiv1.LeaseChange
		want   string
		note   string
	}{
		{&apiv1.LeaseChange{What: "released", Holder: "a"}, "a released it", ""},
		{&apiv1.LeaseChange{What: "expired", Holder: "a", LateMs: 20}, "a did not extend it; it was freed 20ms after its deadline", "20ms after its deadline"},
		{&apiv1.LeaseChange{What: "revoked", Holder: "a", By: "op"}, "it was revoked from a by op", "by op"},
		{&apiv1.LeaseChange{What: "session_gone", Holder: "a"}, "the session of a was closed", ""},
		{&apiv1.LeaseChange{What: "session_gone", Holder: "a", By: "closed by its client", Principal: "agent:a"}, "the session of a was closed by its client", "closed by its client; as agent:a"},
		{&apiv1.LeaseChange{What: "session_gone", Holder: "a", By: "upgrade"}, "the session of a was closed: upgrade", "upgrade"},
		{&apiv1.LeaseChange{What: "transferred", Holder: "a"}, "a handed it on", ""},
		{&apiv1.LeaseChange{What: "declined", Holder: "a"}, "a did not accept the offer in time", ""},
	} {
		if got := why(c.change); got != c.want {
			t.Errorf("%s: %q, want %q", c.change.What, got, c.want)
		}
		if got := changeNote(c.change); got != c.note {
			t.Errorf("%s: note %q, want %q", c.change.What, got, c.note)
		}
		got := explain(&apiv1.Lease{Name: &apiv1.LeaseName{Name: "x"}, History: []*apiv1.LeaseChange{c.change}})
		if !strings.HasSuffix(strings.Join(got, "\n"), c.want+".") {
			t.Errorf("explain says %q", got)
		}
	}
}
