package main

import (
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

func statusCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "one screen: how the cluster is",
		Long: `Status prints a verdict, the members, the doors, what is held and watched, rates
over the last ten seconds, limits that are near, and warnings. The member that
answers asks the others first: the verdict is of what it heard within the last
second. Exit code 5: no member answers.`,
		Example: "  incumbent status\n  incumbent status -o json | jq -r .verdict",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			return withClient(c, func(cl *client.Client) error {
				res, err := cl.Cluster().Status(c.Context(), connect.NewRequest(&apiv1.StatusRequest{}))
				if err != nil {
					return err
				}
				if form != formTable {
					return printProto(env.stdout, form, res.Msg)
				}
				return printStatus(env.stdout, res.Msg)
			})
		},
	}
	addServerFlags(c)
	addOutput(c)
	return c
}

func printStatus(out io.Writer, s *apiv1.StatusResponse) error {
	fmt.Fprintf(out, "%s\n\n", incumbent.Escape(s.Verdict))
	for _, w := range s.Warnings {
		fmt.Fprintf(out, "warning: %s\n", incumbent.Escape(w))
	}
	if len(s.Warnings) > 0 {
		fmt.Fprintln(out)
	}
	if err := printStatusMembers(out, s); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := printDoors(out, s.Doors); err != nil {
		return err
	}
	r := s.GetRates()
	st := s.GetStorage()
	fmt.Fprintln(out)
	facts := &table{}
	facts.row("index", strconv.FormatUint(s.Index, 10), "term", strconv.FormatUint(s.Term, 10))
	facts.row("leases held", strconv.FormatUint(s.Leases, 10), "waiting", strconv.FormatUint(s.Waiters, 10))
	facts.row("sessions", strconv.FormatUint(s.Sessions, 10), "watches", strconv.FormatUint(s.Watches, 10))
	facts.row("claims/s", rate(r.GetClaims()), "extensions/s", rate(r.GetExtensions()))
	facts.row("releases/s", rate(r.GetReleases()), "expiries/s", rate(r.GetExpiries()))
	facts.row("refusals/s", rate(r.GetRefusals()), "watch events/s", rate(r.GetEvents()))
	facts.row("memory", size(s.RssBytes), "log", size(st.GetLogBytes()))
	facts.row("disk free", size(st.GetFreeBytes()), "last flush", fmt.Sprintf("%.2f ms", st.GetLastSyncMs()))
	facts.row("up", (time.Duration(s.UptimeMs) * time.Millisecond).Round(time.Second).String(), "version", s.Version)
	if s.ConfirmedMsAgo > 0 {
		facts.row("confirmed", agoText(s.ConfirmedMsAgo))
	}
	if b := s.Backups; b != nil {
		facts.row("backups", newestBackup(b), "written by", orDash(b.Writer))
	}
	if err := facts.print(out); err != nil {
		return err
	}
	if len(s.Refusing) > 0 {
		fmt.Fprintf(out, "\nrefusing now: %s\n", incumbent.Escape(strings.Join(s.Refusing, ", ")))
	}
	return printLimits(out, s.Limits)
}

// printDoors prints where clients connect, and what only Juju's agents have there.
func printDoors(out io.Writer, doors []*apiv1.Door) error {
	t := &table{header: []string{"door", "address", "tls", "connections", "agents", "outstanding claims", "blocked calls"}}
	for _, d := range doors {
		agents, claims, blocked := "-", "-", "-"
		if d.Name == "juju" {
			agents, claims, blocked = strconv.FormatUint(d.Agents, 10), strconv.FormatUint(d.OutstandingClaims, 10), strconv.FormatUint(d.BlockedCalls, 10)
		}
		t.row(d.Name, d.Address, yesNo(d.Tls), strconv.FormatUint(d.Connections, 10), agents, claims, blocked)
	}
	return t.print(out)
}

// printStatusMembers prints the members as the one that answers knows them. What
// only the leader knows of others is left out where it is not known.
func printStatusMembers(out io.Writer, s *apiv1.StatusResponse) error {
	t := &table{header: []string{"member", "id", "role", "address", "applied", "behind", "connected", "heard", "ready"}}
	fromLeader := false
	for _, m := range s.Members {
		fromLeader = fromLeader || m.Self && m.Role == "leader"
	}
	for _, m := range s.Members {
		applied, behind := strconv.FormatUint(m.AppliedIndex, 10), strconv.FormatUint(m.Lag, 10)
		if !m.Self && !fromLeader {
			applied, behind = "-", "-"
		} else if m.Self && !fromLeader {
			behind = strconv.FormatUint(m.CommitIndex-min(m.AppliedIndex, m.CommitIndex), 10)
		}
		role := m.Role
		if m.Learner && role == "learner" {
			role = "learner (stays)"
		}
		heard := "-"
		if !m.Self {
			heard = agoText(m.HeardMsAgo)
		}
		t.row(orDash(m.Name), m.Id, role, orDash(m.Address), applied, behind, yesNo(m.Connected), heard, yesNo(m.Ready))
	}
	return t.print(out)
}

// printLimits shows the limits of which more than half is used.
func printLimits(out io.Writer, limits []*apiv1.Limit) error {
	t := &table{header: []string{"limit", "used", "of", "unit", "setting"}}
	sort.Slice(limits, func(i, j int) bool { return limits[i].Name < limits[j].Name })
	for _, l := range limits {
		if l.Value > 0 && l.Used*2 > l.Value {
			t.row(l.Name, strconv.FormatUint(l.Used, 10), strconv.FormatUint(l.Value, 10), l.Unit, orDash(l.Setting))
		}
	}
	if len(t.rows) == 0 {
		return nil
	}
	fmt.Fprintln(out, "\nlimits more than half used:")
	return t.print(out)
}

// newestBackup is the newest one that the member knows in its folder.
func newestBackup(b *apiv1.Backups) string {
	if b.NewestUnixMs == 0 {
		return "none in " + b.Dir
	}
	return fmt.Sprintf("%s at %s in %s", size(b.NewestBytes), wallTime(b.NewestUnixMs), b.Dir)
}

// agoText is how long ago something was.
func agoText(ms uint32) string {
	d := time.Duration(ms) * time.Millisecond
	if d >= time.Second {
		d = d.Round(100 * time.Millisecond)
	}
	return d.String() + " ago"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func rate(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

// size prints bytes in the largest binary unit that leaves at least 1.
func size(n uint64) string {
	const units = "KMGT"
	if n < 1024 {
		return strconv.FormatUint(n, 10) + " B"
	}
	f, i := float64(n)/1024, 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}
