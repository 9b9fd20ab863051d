package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Escape sequences of a terminal (ECMA-48): home, the rest of a line and of the screen
// cleared, and the alternate screen of xterm.
const (
	screenHome  = "\x1b[H"
	lineRest    = "\x1b[K"
	screenRest  = "\x1b[J"
	screenOther = "\x1b[?1049h\x1b[?25l"
	screenOwn   = "\x1b[?25h\x1b[?1049l"
)

// shortestRefresh keeps a terminal from being the load: each refresh asks all members.
const shortestRefresh = 200 * time.Millisecond

func topCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "top",
		Short: "live view of members, doors, leases, services and who watches them",
		Long: `Top shows the status of the member that answers, anew each --every: the verdict,
members, doors with their connections, rates, what the catalog has, and the reads
that most callers wait for: the services that are watched, with their watchers.

On a terminal it fills the screen until interrupted. Elsewhere, and with -n, one
view follows the other. Exit code 5: no member answers to the first.`,
		Example: "  incumbent top\n  incumbent top -n 1\n  incumbent top --every 5s -o jsonl",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			v := topView{env: env, form: form}
			v.times, _ = c.Flags().GetInt("times")
			if v.every, _ = c.Flags().GetDuration("every"); v.every < shortestRefresh {
				return usageError{fmt.Sprintf("--every %v is shorter than %v", v.every, shortestRefresh)}
			}
			if v.times < 0 {
				return usageError{fmt.Sprintf("-n %d is negative; 0 is without end", v.times)}
			}
			return untilInterrupted(c, withClient(c, func(cl *client.Client) error { return v.run(c.Context(), cl) }))
		},
	}
	c.Flags().Duration("every", time.Second, "how often")
	c.Flags().IntP("times", "n", 0, "how many views, 0 without end")
	addServerFlags(c)
	addOutput(c)
	return c
}

// topView is the view and where it goes.
type topView struct {
	env   *environment
	form  string
	every time.Duration
	times int
}

func (v *topView) run(ctx context.Context, cl *client.Client) error {
	lines := 0 // of the terminal; 0: it is none
	if v.form == formTable && v.times == 0 && term.IsTerminal(int(v.env.stdout.Fd())) {
		lines = 24
		fmt.Fprint(v.env.stdout, screenOther)
		defer fmt.Fprint(v.env.stdout, screenOwn)
	}
	tick := time.NewTicker(v.every)
	defer tick.Stop()
	for n := 1; ; n++ {
		if lines > 0 {
			if _, h, err := term.GetSize(int(v.env.stdout.Fd())); err == nil && h > 0 {
				lines = h
			}
		}
		res, err := cl.Cluster().Status(ctx, connect.NewRequest(&apiv1.StatusRequest{}))
		switch {
		case err != nil && (n == 1 || ctx.Err() != nil):
			return err
		case err != nil: // a member may be on its way to another leader: say so, and go on
			err = v.missed(client.AsError(err), lines)
		default:
			err = v.show(res.Msg, lines)
		}
		if err != nil || n == v.times {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// missed says that nobody answered this time.
func (v *topView) missed(err error, lines int) error {
	var typed *incumbent.Error
	if errors.As(err, &typed) && typed.Kind == incumbent.Denied {
		return err
	}
	if lines == 0 {
		_, err = fmt.Fprintf(v.env.stderr, "incumbent: %s\n", incumbent.Escape(err.Error()))
		return err
	}
	_, err = fmt.Fprintf(v.env.stdout, "%s%s%s", screenHome, incumbent.Escape(err.Error()), lineRest)
	return err
}

// show prints one view: over the one before, if lines of a terminal are given.
func (v *topView) show(s *apiv1.StatusResponse, lines int) error {
	if v.form != formTable {
		return printProto(v.env.stdout, v.form, s)
	}
	var out strings.Builder
	if err := printTop(&out, s); err != nil {
		return err
	}
	if lines == 0 {
		_, err := io.WriteString(v.env.stdout, out.String()+"\n")
		return err
	}
	shown := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	shown = shown[:min(len(shown), lines-1)]
	_, err := io.WriteString(v.env.stdout, screenHome+strings.Join(shown, lineRest+"\r\n")+lineRest+screenRest)
	return err
}

func printTop(out io.Writer, s *apiv1.StatusResponse) error {
	up := (time.Duration(s.UptimeMs) * time.Millisecond).Round(time.Second)
	fmt.Fprintf(out, "%s\nup %v, memory %s, index %d, term %d\n\n", incumbent.Escape(s.Verdict), up, size(s.RssBytes), s.Index, s.Term)
	for _, w := range s.Warnings {
		fmt.Fprintf(out, "warning: %s\n", incumbent.Escape(w))
	}
	if len(s.Refusing) > 0 {
		fmt.Fprintf(out, "refusing now: %s\n", incumbent.Escape(strings.Join(s.Refusing, ", ")))
	}
	if err := printStatusMembers(out, s); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := printDoors(out, s.Doors); err != nil {
		return err
	}
	fmt.Fprintln(out)
	count := func(n uint64) string { return strconv.FormatUint(n, 10) }
	r := s.GetRates()
	facts := &table{}
	facts.row("leases", count(s.Leases), "waiting", count(s.Waiters), "sessions", count(s.Sessions), "watches", count(s.Watches))
	facts.row("claims/s", rate(r.GetClaims()), "extensions/s", rate(r.GetExtensions()), "releases/s", rate(r.GetReleases()), "expiries/s", rate(r.GetExpiries()))
	facts.row("refusals/s", rate(r.GetRefusals()), "events/s", rate(r.GetEvents()), "connections", count(s.Connections), "", "")
	if c := s.Catalog; c != nil {
		facts.row("nodes", count(c.Nodes), "instances", count(c.Instances), "critical checks", count(c.Critical), "passing", count(c.Passing))
	}
	if err := facts.print(out); err != nil {
		return err
	}
	if len(s.SharedReads) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	reads := &table{header: []string{"waiting", "for"}}
	for _, q := range s.SharedReads {
		reads.row(count(q.Waiting), q.What)
	}
	return reads.print(out)
}
