package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// leaseDocument is a lease as scripts read it: the keys are promised.
type leaseDocument struct {
	Name           string   `json:"name"`
	Namespace      string   `json:"namespace"`
	Model          string   `json:"model"`
	Holder         string   `json:"holder"`
	Token          string   `json:"token"`
	TTLMs          uint32   `json:"ttl_ms"`
	ExpiresInMs    uint32   `json:"expires_in_ms"`
	Session        string   `json:"session"`
	Pins           []string `json:"pins"`
	Since          string   `json:"since"`
	Extends        uint64   `json:"extends"`
	PreviousHolder string   `json:"previous_holder"`
	Reason         string   `json:"reason"`
	Offered        bool     `json:"offered"`
	Revoking       bool     `json:"revoking"`
	Waiting        int      `json:"waiting"`
	Index          string   `json:"index"`
	Door           string   `json:"door"`
	Address        string   `json:"address"`
	Principal      string   `json:"principal"`
}

func document(l *apiv1.Lease) leaseDocument {
	return leaseDocument{
		Name: l.GetName().GetName(), Namespace: l.GetName().GetNamespace(), Model: l.GetName().GetModel(),
		Holder: l.Holder, Token: strconv.FormatUint(l.Token, 10), TTLMs: l.TtlMs, ExpiresInMs: l.ExpiresInMs,
		Session: l.Session, Pins: append([]string{}, l.Pins...), Since: wallTime(l.SinceUnixMs), Extends: l.Extends,
		PreviousHolder: l.PreviousHolder, Reason: l.Reason, Offered: l.Offered, Revoking: l.Revoking,
		Waiting: len(l.Queue), Index: strconv.FormatUint(l.ModifiedIndex, 10),
		Door: l.Door, Address: l.Address, Principal: l.Principal,
	}
}

func wallTime(unixMs int64) string {
	if unixMs == 0 {
		return ""
	}
	return time.UnixMilli(unixMs).UTC().Format("2006-01-02T15:04:05.000Z")
}

// printLease prints one lease in the form asked for.
func printLease(c *cobra.Command, env *environment, l *apiv1.Lease) error {
	if form := formOf(c); form != formTable {
		return printJSON(env.stdout, form, document(l))
	}
	t := leaseTable()
	t.row(leaseRow(l)...)
	return t.print(env.stdout)
}

func leaseTable() *table {
	return &table{header: []string{"name", "holder", "token", "ttl", "expires in", "extends", "waiting", "note"}}
}

func leaseRow(l *apiv1.Lease) []string {
	name := l.GetName().GetName()
	if l.Token == 0 {
		return []string{name, "-", "-", "-", "-", "-", strconv.Itoa(len(l.Queue)), note(l)}
	}
	expires := "-"
	if l.ExpiresInMs > 0 {
		expires = ms(l.ExpiresInMs).Round(100 * time.Millisecond).String()
	}
	return []string{
		name, l.Holder, strconv.FormatUint(l.Token, 10), ttlText(l.TtlMs), expires,
		strconv.FormatUint(l.Extends, 10), strconv.Itoa(len(l.Queue)), note(l),
	}
}

func ttlText(n uint32) string {
	if n == 0 {
		return "none"
	}
	return ms(n).String()
}

func note(l *apiv1.Lease) string {
	var notes []string
	if l.Token == 0 {
		notes = append(notes, "free")
	}
	if l.Offered {
		notes = append(notes, "offered")
	}
	if l.Revoking {
		notes = append(notes, "being revoked")
	}
	if len(l.Pins) > 0 {
		notes = append(notes, "pinned by "+strings.Join(l.Pins, ", "))
	}
	if l.Session != "" {
		notes = append(notes, "session "+l.Session)
	}
	return strings.Join(notes, "; ")
}

func addStale(c *cobra.Command) {
	c.Flags().Bool("stale", false, "answer from this member's own state, unconfirmed")
}

func getLease(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) (*apiv1.Lease, error) {
	stale, _ := c.Flags().GetBool("stale")
	res, err := cl.Leases().Get(c.Context(), connect.NewRequest(&apiv1.GetRequest{Name: name, Stale: stale}))
	if err != nil {
		return nil, err
	}
	return res.Msg.Lease, nil
}

func leaseGet(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "get",
		Short:   "show one lease",
		Long:    "Get shows NAME. Exit code 3: no such lease was ever held, or it is forgotten.",
		Example: "  incumbent lease get db/primary -o json",
	}
	addStale(c)
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		l, err := getLease(c, cl, name)
		if err != nil {
			return err
		}
		return printLease(c, env, l)
	})
}

func leaseList(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "list leases",
		Long: `Ls lists the leases of the namespace and model in the order of their names, a
page at a time from the server, all of them here. With --all-models those of every
namespace, or of the one that --namespace names, each with where it belongs; what
environment and settings file say of model and namespace does not count then.`,
		Example: `  incumbent lease ls db/
  incumbent lease ls --count
  incumbent lease ls --all-models -o jsonl | jq -r .holder
  incumbent lease ls --all-models --namespace application-leadership`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			req := &apiv1.ListRequest{Namespace: text(c, "namespace"), Model: text(c, "model"), Prefix: first(args)}
			if all, _ := c.Flags().GetBool("all-models"); all {
				if typed(c.Flags().Lookup("model")) {
					return usageError{"give either --model or --all-models"}
				}
				req.Model = ""
				if !typed(c.Flags().Lookup("namespace")) {
					req.Namespace = ""
				}
			}
			req.Free, _ = c.Flags().GetBool("free")
			req.Stale, _ = c.Flags().GetBool("stale")
			req.CountOnly, _ = c.Flags().GetBool("count")
			return withClient(c, func(cl *client.Client) error { return listLeases(c, env, form, cl, req) })
		},
	}
	c.Flags().Bool("all-models", false, "of all models, and of all namespaces unless --namespace names one")
	c.Flags().Bool("free", false, "also leases that nobody holds")
	c.Flags().Bool("count", false, "only how many")
	addStale(c)
	addOutput(c)
	return c
}

func listLeases(c *cobra.Command, env *environment, form string, cl *client.Client, req *apiv1.ListRequest) error {
	out, t := env.stdout, leaseTable()
	all := req.Model == ""
	if all {
		t.header = append([]string{"namespace", "model"}, t.header...)
	}
	docs := []leaseDocument{}
	for {
		res, err := cl.Leases().List(c.Context(), connect.NewRequest(req))
		if err != nil {
			return err
		}
		if req.CountOnly {
			if form == formTable {
				return say(out, "%d", res.Msg.Count)
			}
			return printJSON(out, form, map[string]any{"count": res.Msg.Count, "index": strconv.FormatUint(res.Msg.Index, 10)})
		}
		for _, l := range res.Msg.Leases {
			switch form {
			case formJSONL:
				if err := printJSON(out, form, document(l)); err != nil {
					return err
				}
			case formJSON:
				docs = append(docs, document(l))
			default:
				row := leaseRow(l)
				if all {
					row = append([]string{l.GetName().GetNamespace(), l.GetName().GetModel()}, row...)
				}
				t.row(row...)
			}
			req.After = l.Name
		}
		if !res.Msg.More {
			break
		}
	}
	switch form {
	case formJSON:
		return printJSON(out, form, docs)
	case formTable:
		if len(t.rows) == 0 && !all && req.Prefix == "" {
			fmt.Fprintf(env.stderr, "nothing in namespace %s, model %s; --all-models lists those of others\n", req.Namespace, req.Model)
		}
		return t.print(out)
	}
	return nil
}

func leaseHistory(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "history",
		Short:   "show the last changes of a lease",
		Long:    "History shows the last changes of NAME, oldest first: at most 16, at most 4 kB.",
		Example: "  incumbent lease history db/primary",
	}
	addStale(c)
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		l, err := getLease(c, cl, name)
		if err != nil {
			return err
		}
		t := &table{header: []string{"index", "when", "what", "holder", "token", "from", "note"}}
		for _, h := range l.History {
			t.row(strconv.FormatUint(h.Index, 10), wallTime(h.AtUnixMs), h.What, orDash(h.Holder), tokenText(h.Token), from(h.Door, h.Address), changeNote(h))
		}
		return printRecords(env.stdout, formOf(c), l.History, t)
	})
}

func changeNote(h *apiv1.LeaseChange) string {
	var notes []string
	if h.LateMs > 0 {
		notes = append(notes, ms(h.LateMs).String()+" after its deadline")
	}
	switch {
	case h.By == "":
	case h.What == "session_gone":
		notes = append(notes, h.By) // the reason of the close, not a name
	default:
		notes = append(notes, "by "+h.By)
	}
	if h.Principal != "" {
		notes = append(notes, "as "+h.Principal)
	}
	return strings.Join(notes, "; ")
}

func tokenText(t uint64) string {
	if t == 0 {
		return "-"
	}
	return strconv.FormatUint(t, 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func from(door, address string) string {
	switch {
	case door == "" && address == "":
		return "-"
	case address == "":
		return door
	}
	return address + " (" + door + ")"
}

func leaseWatch(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "follow changes of leases",
		Long: `Watch prints what is there and then every change in order, until interrupted, and
goes on with another member when one fails. --exact watches the one lease of that
name. --after resumes after an index; exit code 6 says that the history back to it is
gone, or that the cluster has no such index. --fields tells only the changes of these:
holder (with token and session), ttl, pins, offered, critical, revoking, queue. With
-o json, too, each change is one line.`,
		Example: "  incumbent lease watch db/\n  incumbent lease watch db/primary --exact --fields holder -o jsonl",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			opts := client.WatchOptions{Name: incumbent.Name{Namespace: text(c, "namespace"), Model: text(c, "model"), Lease: first(args)}}
			exact, _ := c.Flags().GetBool("exact")
			after, _ := c.Flags().GetUint64("after")
			opts.Prefix, opts.After = !exact, incumbent.Index(after)
			opts.Fields, _ = c.Flags().GetStringSlice("fields")
			if exact && opts.Name.Lease == "" {
				return usageError{"--exact needs the name of a lease"}
			}
			return untilInterrupted(c, withClient(c, func(cl *client.Client) error {
				_, err := cl.Leases().List(c.Context(), connect.NewRequest(&apiv1.ListRequest{
					Namespace: opts.Name.Namespace, Model: opts.Name.Model, Prefix: opts.Name.Lease, Limit: 1,
				}))
				if err := wrong(err); err != nil {
					return err
				}
				return follow(c, env, cl.Watch(c.Context(), opts), printEvents)
			}))
		},
	}
	c.Flags().Bool("exact", false, "the argument is a whole name, not a prefix")
	c.Flags().Uint64("after", 0, "resume after this index")
	c.Flags().StringSlice("fields", nil, "only changes of these fields, such as holder")
	addOutput(c)
	return c
}

func printEvents(out io.Writer, form string, m *apiv1.WatchResponse) error {
	for _, e := range m.GetEvents() {
		if form != formTable {
			if err := printJSON(out, formJSONL, map[string]any{
				"index": strconv.FormatUint(e.Index, 10), "what": e.What, "lease": document(e.Lease),
				"previous_holder": e.PreviousHolder, "previous_token": strconv.FormatUint(e.PreviousToken, 10),
			}); err != nil {
				return err
			}
			continue
		}
		if err := say(out, "%8d  %-12s %s  holder %s  token %s", e.Index, e.What, e.GetLease().GetName().GetName(), orDash(e.Lease.Holder), tokenText(e.Lease.Token)); err != nil {
			return err
		}
	}
	return nil
}
