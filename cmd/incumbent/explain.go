package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

func leaseExplain(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain",
		Short: "say who holds a lease and why",
		Long: `Explain answers in sentences: who holds NAME, since when, from which address,
through which door, how often extended, who held it before, and why it changed
hands.`,
		Example: "  incumbent lease explain db/primary",
	}
	addStale(c)
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		l, err := getLease(c, cl, name)
		if err != nil {
			return err
		}
		if form := formOf(c); form != formTable {
			return printProto(env.stdout, form, l)
		}
		for _, line := range explain(l) {
			if err := say(env.stdout, "%s", line); err != nil {
				return err
			}
		}
		return nil
	})
}

// explain puts a lease into sentences.
func explain(l *apiv1.Lease) []string {
	name := l.GetName().GetName()
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if l.Token == 0 {
		say("%s is free.", name)
	} else {
		say("%s is held by %s with token %d, since %s.", name, l.Holder, l.Token, wallTime(l.SinceUnixMs))
		say("It was taken from %s%s.", from(l.Door, l.Address), as(l.Principal))
		say("%s", lifeOf(l))
	}
	if l.Offered {
		say("It was handed over: %s holds it from its first extension on, of which it is said here a second later.", l.Holder)
	}
	if l.Revoking {
		say("It is being revoked: extensions are refused, and it is free when its deadline passes.")
	}
	if len(l.Pins) > 0 {
		say("It cannot expire while pinned by %s.", strings.Join(l.Pins, ", "))
	}
	if l.PreviousHolder != "" {
		say("Before, %s held it.", l.PreviousHolder)
	}
	if h := lastHandOver(l); h != nil {
		say("It last changed hands at index %d, %s: %s.", h.Index, wallTime(h.AtUnixMs), why(h))
	}
	for i, w := range l.Queue {
		say("Waiting, place %d: %s (session %s, since index %d).", i+1, w.Holder, w.Session, w.SinceIndex)
	}
	return out
}

func as(principal string) string {
	if principal == "" {
		return ""
	}
	return " as " + principal
}

func lifeOf(l *apiv1.Lease) string {
	var b strings.Builder
	if l.Session != "" {
		fmt.Fprintf(&b, "It lives as long as session %s (ttl %s)", l.Session, ttlText(l.TtlMs))
	} else {
		fmt.Fprintf(&b, "Its ttl is %s", ttlText(l.TtlMs))
	}
	if l.ExpiresInMs > 0 {
		fmt.Fprintf(&b, "; without an extension it is free in %v", ms(l.ExpiresInMs).Round(100*time.Millisecond))
	}
	fmt.Fprintf(&b, ". Extended %d times since this leader leads", l.Extends)
	if l.LastExtendMsAgo >= 0 && l.Extends > 0 {
		fmt.Fprintf(&b, ", last %v ago", (time.Duration(l.LastExtendMsAgo) * time.Millisecond).Round(100*time.Millisecond))
	}
	return b.String() + "."
}

// lastHandOver finds the newest change that ended or began a holding.
func lastHandOver(l *apiv1.Lease) *apiv1.LeaseChange {
	for i := len(l.History) - 1; i >= 0; i-- {
		switch l.History[i].What {
		case "released", "expired", "revoked", "session_gone", "transferred", "declined":
			return l.History[i]
		}
	}
	return nil
}

func why(h *apiv1.LeaseChange) string {
	switch h.What {
	case "released":
		return h.Holder + " released it"
	case "expired":
		return fmt.Sprintf("%s did not extend it; it was freed %v after its deadline", h.Holder, ms(h.LateMs))
	case "revoked":
		return fmt.Sprintf("it was revoked from %s by %s", h.Holder, orDash(h.By))
	case "session_gone":
		closed := "the session of " + h.Holder + " was closed"
		switch {
		case h.By == "":
			return closed
		case strings.HasPrefix(h.By, "closed "):
			return "the session of " + h.Holder + " was " + h.By
		}
		return closed + ": " + h.By
	case "transferred":
		return h.Holder + " handed it on"
	case "declined":
		return h.Holder + " did not accept the offer in time"
	}
	return h.What
}
