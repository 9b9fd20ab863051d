package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// leaseCommand is the noun. The verbs that change a lease are in this file, the
// ones that look at leases in lease_read.go.
func leaseCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "lease",
		Short: "claim, keep, inspect and take away leases",
		Example: `  incumbent lease claim db/primary --holder me --ttl 15s
  incumbent lease explain db/primary
  incumbent lease ls db/ -o jsonl`,
	}
	c.PersistentFlags().String("namespace", incumbent.DefaultNamespace, "namespace of the lease")
	c.PersistentFlags().String("model", incumbent.DefaultModel, "model of the lease")
	addServerFlags(c)
	c.AddCommand(
		leaseClaim(env), leaseExtend(env), leaseRelease(env), leaseRevoke(env), leaseTransfer(env), leasePin(env), leaseUnpin(env),
		leaseGet(env), leaseList(env), leaseWatch(env), leaseHistory(env), leaseExplain(env),
	)
	return c
}

// leaseCall is what a verb does with a checked name and a client.
type leaseCall func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error

// leaseVerb completes a verb that takes the name of one lease.
func leaseVerb(env *environment, c *cobra.Command, call leaseCall) *cobra.Command {
	c.Use += " NAME"
	c.Args = exactArgs("NAME")
	c.RunE = func(c *cobra.Command, args []string) error {
		name, err := leaseName(c, args[0])
		if err != nil {
			return err
		}
		if err := ownToken(env, c, name); err != nil {
			return err
		}
		err = withClient(c, func(cl *client.Client) error { return call(c, cl, name) })
		return advise(err, name.Name)
	}
	addOutput(c)
	return c
}

// ownToken forgets a token that 'incumbent run' has put into the environment if the verb is
// about another lease than it holds.
func ownToken(env *environment, c *cobra.Command, name *apiv1.LeaseName) error {
	f := c.Flags().Lookup("token")
	if f == nil || typed(f) {
		return nil
	}
	if _, run := lookupEnv(env, "lease"); !run {
		return nil
	}
	for part, is := range map[string]string{"lease": name.Name, "namespace": name.Namespace, "model": name.Model} {
		if v, ok := lookupEnv(env, part); ok && v != is {
			return f.Value.Set("0")
		}
	}
	return nil
}

// advise says what helps somebody who was refused because of another holder, or has the name from an event.
func advise(err error, name string) error {
	var typed *incumbent.Error
	if !errors.As(err, &typed) || typed.Hint != "" {
		return err
	}
	if typed.Kind == incumbent.Held || typed.Kind == incumbent.NotHolder {
		return typed.WithHint("'incumbent lease explain " + name + "' says who holds it and why")
	}
	if parts := strings.SplitN(name, ":", 3); typed.Kind == incumbent.NotFound && len(parts) == 3 { // as logs and events have it
		return typed.WithHint("if that is NAMESPACE:MODEL:LEASE, give it as " + parts[2] + " --namespace " + parts[0] + " --model " + parts[1])
	}
	return err
}

func leaseClaim(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "claim",
		Short: "claim a free lease, or extend one's own",
		Long: `Claim grants NAME to the holder if it is free, and extends it if the holder has
it. Exit code 3: another holds it.

The lease ends when its ttl passes without an extension: see 'incumbent run' to
keep one for as long as a command runs.

Every claim from here carries an idempotency key, so that it may be sent again
when an answer is lost. The answer is kept with the key, so that each one costs an
entry of the log, a refused one and one that only extends too. To keep a lease use
'incumbent lease extend', which costs none; to wait for one, 'incumbent run'.`,
		Example: `  incumbent lease claim db/primary --holder me --ttl 15s
  TOKEN=$(incumbent lease claim db/primary --holder me -o json | jq -r .token)`,
	}
	addClaimant(c)
	c.Flags().Duration("ttl", 15*time.Second, "how long without an extension, 1s to 24h")
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		ttl, err := ttlFlag(c)
		if err != nil {
			return err
		}
		res, err := cl.Leases().Claim(c.Context(), connect.NewRequest(&apiv1.ClaimRequest{
			Name: name, Holder: claimant(c, cl), TtlMs: ttl, Idempotency: cl.NewKey(),
		}))
		if err != nil {
			return err
		}
		l := res.Msg.Lease
		if l.ExpiresInMs == 0 {
			l.ExpiresInMs = res.Msg.HeldMs // what the answer promises; later the server says
		}
		return printLease(c, env, l)
	})
}

func leaseExtend(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "extend",
		Short:   "extend a lease one holds",
		Long:    "Extend keeps NAME for another ttl. Exit code 3: the holder does not hold it (any more).",
		Example: "  incumbent lease extend db/primary --holder me\n  incumbent lease extend db/primary --token 17",
	}
	addHolding(c)
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		holder, token, err := holding(c)
		if err != nil {
			return err
		}
		if holder == "" {
			if holder, err = holderOf(c, cl, name, token); err != nil {
				return err
			}
		}
		res, err := cl.Leases().Extend(c.Context(), connect.NewRequest(&apiv1.ExtendRequest{
			Extensions: []*apiv1.Extension{{Name: name, Holder: holder, Token: token}},
		}))
		if err != nil {
			return err
		}
		one := res.Msg.Results[0]
		if one.Error != nil {
			return client.DetailError(one.Error)
		}
		return printMessage(c, env, one, "%s held for another %v", name.Name, ms(one.HeldMs))
	})
}

// holderOf looks up who holds NAME under the token: the API takes a token alone,
// and would then extend whatever lease it is of.
func holderOf(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName, token uint64) (string, error) {
	l, err := getLease(c, cl, name)
	if err != nil {
		return "", err
	}
	if l.Token != token {
		return "", incumbent.Errorf(incumbent.NotHolder, "%s is not held under token %d", name.Name, token)
	}
	return l.Holder, nil
}

func leaseRelease(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "release",
		Short: "release a lease one holds",
		Long: `Release frees NAME at once. Releasing what nobody holds, or with the token of an
earlier holding, succeeds and does nothing. Exit code 3: another holds it.`,
		Example: "  incumbent lease release db/primary --holder me",
	}
	addHolding(c)
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		holder, token, err := holding(c)
		if err != nil {
			return err
		}
		res, err := cl.Leases().Release(c.Context(), connect.NewRequest(&apiv1.ReleaseRequest{
			Name: name, Holder: holder, Token: token, Idempotency: cl.NewKey(),
		}))
		if err != nil {
			return err
		}
		line := name.Name + " released"
		if !res.Msg.Released {
			line = name.Name + " was not held so: nothing to release"
		}
		return printMessage(c, env, res.Msg, "%s", line)
	})
}

func leaseRevoke(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "revoke",
		Short: "take a lease from whoever holds it",
		Long: `Revoke stops extensions of NAME and frees it when its deadline passes, so that
its holder is never contradicted. With --force it is free at once, although its
holder may believe to hold it until its own deadline: the one exception to
"never two at once". Exit code 3: nobody holds it. Exit code 6: the holding is
not the one --token names.`,
		Example: "  incumbent lease revoke db/primary --by alice",
	}
	c.Flags().Uint64("token", 0, "only this holding (0: whichever it is)")
	c.Flags().Bool("force", false, "free now, before the holder's own deadline")
	c.Flags().String("by", "", "who revokes, for the history (default: host and process id)")
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		req := &apiv1.RevokeRequest{Name: name, By: cmp.Or(text(c, "by"), processName()), Idempotency: cl.NewKey()}
		req.Token, _ = c.Flags().GetUint64("token")
		req.Force, _ = c.Flags().GetBool("force")
		res, err := cl.Leases().Revoke(c.Context(), connect.NewRequest(req))
		if err != nil {
			return err
		}
		return printLease(c, env, res.Msg.Lease)
	})
}

func leaseTransfer(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "transfer",
		Short: "offer a lease one holds to a session",
		Long: `Transfer frees NAME and offers it under a new token to the session in one step:
nobody else can come between. The session accepts by its first extension, or the
next in the queue is asked. Exit code 3: the holder named does not hold it.`,
		Example: "  incumbent lease transfer db/primary --holder me --to-session UUID",
	}
	addHolding(c)
	c.Flags().String("session", "", "the session that owns it now, if one does")
	c.Flags().String("to-session", "", "the session it goes to")
	c.Flags().String("to-holder", "", "the holder it goes to (default: as the session waits in the queue)")
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		req := &apiv1.TransferRequest{
			Name: name, Session: text(c, "session"), ToSession: text(c, "to-session"), ToHolder: text(c, "to-holder"), Idempotency: cl.NewKey(),
		}
		var err error
		if req.Holder, req.Token, err = holding(c); err != nil {
			return err
		}
		if req.ToSession == "" {
			return usageError{"name the session it goes to with --to-session"}
		}
		res, err := cl.Leases().Transfer(c.Context(), connect.NewRequest(req))
		if err != nil {
			return err
		}
		return printLease(c, env, res.Msg.Lease)
	})
}

func leasePin(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "pin",
		Short:   "stop a lease from expiring",
		Long:    "Pin stops NAME from expiring while at least one entity pins it. It may still be released.",
		Example: "  incumbent lease pin db/primary --by upgrade-17",
	}
	c.Flags().String("by", "", "the entity that pins")
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		if err := pinFlag(c); err != nil {
			return err
		}
		res, err := cl.Leases().Pin(c.Context(), connect.NewRequest(&apiv1.PinRequest{Name: name, Entity: text(c, "by"), Idempotency: cl.NewKey()}))
		if err != nil {
			return err
		}
		return printLease(c, env, res.Msg.Lease)
	})
}

func leaseUnpin(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "unpin",
		Short:   "let a lease expire again",
		Long:    "Unpin takes one entity's pin away. When the last is gone the lease's clock starts again at full ttl.",
		Example: "  incumbent lease unpin db/primary --by upgrade-17",
	}
	c.Flags().String("by", "", "the entity that pins")
	return leaseVerb(env, c, func(c *cobra.Command, cl *client.Client, name *apiv1.LeaseName) error {
		if err := pinFlag(c); err != nil {
			return err
		}
		res, err := cl.Leases().Unpin(c.Context(), connect.NewRequest(&apiv1.UnpinRequest{Name: name, Entity: text(c, "by"), Idempotency: cl.NewKey()}))
		if err != nil {
			return err
		}
		return printLease(c, env, res.Msg.Lease)
	})
}

func pinFlag(c *cobra.Command) error {
	if text(c, "by") == "" {
		return usageError{"name the entity that pins with --by"}
	}
	return incumbent.ValidatePin(text(c, "by"))
}

// addClaimant gives a verb the flag that says for whom it claims.
func addClaimant(c *cobra.Command) {
	c.Flags().String("holder", "", "who holds it (default: host and process id; with a credential or certificate, whoever it is of)")
}

// claimant is for whom a verb claims; "": the principal, whom the server knows.
func claimant(c *cobra.Command, cl *client.Client) string {
	return cmp.Or(text(c, "holder"), cl.DefaultHolder())
}

// processName is this process: host and process id.
func processName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return host + "/" + strconv.Itoa(os.Getpid())
}

// addHolding gives a verb the two ways to name a holding.
func addHolding(c *cobra.Command) {
	c.Flags().String("holder", "", "who holds it")
	c.Flags().Uint64("token", 0, "fencing token of the holding")
}

func holding(c *cobra.Command) (holder string, token uint64, err error) {
	token, _ = c.Flags().GetUint64("token")
	holder = text(c, "holder")
	if holder == "" && token == 0 {
		return "", 0, usageError{"name the holding with --holder or --token"}
	}
	return holder, token, nil
}

func leaseName(c *cobra.Command, name string) (*apiv1.LeaseName, error) {
	n := incumbent.Name{Namespace: text(c, "namespace"), Model: text(c, "model"), Lease: name}
	if err := n.Validate(); err != nil {
		return nil, err
	}
	return &apiv1.LeaseName{Namespace: n.Namespace, Model: n.Model, Name: name}, nil
}

func ttlFlag(c *cobra.Command) (uint32, error) {
	d, _ := c.Flags().GetDuration("ttl")
	if err := incumbent.ValidateTTL(d); err != nil {
		return 0, err
	}
	return uint32(d.Milliseconds()), nil
}

// text returns a string flag that the command has for certain.
func text(c *cobra.Command, flag string) string {
	v, _ := c.Flags().GetString(flag)
	return v
}

// exactArgs is for a verb that takes just the arguments of these names.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		want := "no arguments"
		if len(names) > 0 {
			want = strings.Join(names, " ")
		}
		switch {
		case len(args) < len(names):
			return usageError{fmt.Sprintf("'%s' takes %s: %s is missing", c.CommandPath(), want, names[len(args)])}
		case len(args) > len(names):
			return usageError{fmt.Sprintf("'%s' takes %s: what is %q?", c.CommandPath(), want, args[len(names)])}
		}
		return nil
	}
}

func ms(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }
