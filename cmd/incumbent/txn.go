package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

func txnCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "txn [FILE]",
		Short: "do several things or none, guarded by conditions",
		Long: `Txn does what stands behind then if all conditions hold, else what stands behind
else: all of it, or, if one operation fails, nothing. FILE (- for standard input)
has a statement a line, or the request in JSON; --if, --then and --else give
statements, too. Words are parted by blanks, "…" keeps them together, # begins a
comment. A VALUE is the word itself, @FILE or -.

  if held LEASE TOKEN                    the lease is held under the token
  if session UUID                        the session is open
  if key KEY index = N                   or != < >: when it was last modified; 0: never
  if key KEY value = VALUE               or !=
  if key KEY absent                      or exists
  if key KEY locked UUID                 by that session
  if none PREFIX                         no key begins with it
  if unchanged PREFIX N                  none was stored or deleted after index N
  then
  get KEY, list PREFIX, put KEY VALUE, rm KEY, rm-tree PREFIX
  lock KEY VALUE UUID, unlock KEY VALUE UUID
  claim LEASE HOLDER TTL, release LEASE TOKEN
  else
  …

--if-held is "held LEASE TOKEN" with --lease and --token, which a command below
'incumbent run' has in its environment: what it does so is done while its lease is
held, and under that very token, or not at all.

Exit code 6: a condition does not hold, whatever else did; that of its kind if an
operation failed, and nothing has happened.`,
		Example: `  incumbent txn --if 'key config/url absent' --then 'put config/url http://10.0.0.1' --then 'put config/by me'
  incumbent run db/primary -- sh -c 'incumbent txn --if-held --then "put db/writer $INCUMBENT_HOLDER"'
  incumbent txn move.txn -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return runTxn(c, env, args) },
	}
	f := c.Flags()
	f.String("namespace", incumbent.DefaultNamespace, "namespace of keys and leases")
	f.String("model", incumbent.DefaultModel, "model of leases")
	f.StringArray("if", nil, "a condition, as behind if; repeatable")
	f.StringArray("then", nil, "an operation if all conditions hold; repeatable")
	f.StringArray("else", nil, "an operation if one does not; repeatable")
	f.Bool("if-held", false, "only while --lease is held under --token")
	f.String("lease", "", "lease of --if-held")
	f.Uint64("token", 0, "token of --if-held")
	addServerFlags(c)
	addOutput(c)
	return c
}

func runTxn(c *cobra.Command, env *environment, args []string) error {
	form := formOf(c)
	p := &txnParser{env: env, namespace: text(c, "namespace"), model: text(c, "model"), to: &apiv1.TxnRequest{}}
	if len(args) == 1 {
		if err := p.file(args[0]); err != nil {
			return err
		}
	}
	if err := p.flags(c); err != nil {
		return err
	}
	return withClient(c, func(cl *client.Client) error {
		t := cl.Txn(p.namespace).If(p.to.Conditions...).Do(p.to.Then...).Else().Do(p.to.Else...)
		res, err := t.Commit(c.Context())
		if err != nil {
			return err
		}
		if err := printTxn(env, form, p.to, res); err != nil {
			return err
		}
		if !res.Succeeded {
			return statusError{exitConflict, fmt.Sprintf("condition %d does not hold", res.Unmet)}
		}
		return nil
	})
}

// flags adds what the flags say behind what the file says.
func (p *txnParser) flags(c *cobra.Command) error {
	if held, _ := c.Flags().GetBool("if-held"); held {
		token, _ := c.Flags().GetUint64("token")
		if text(c, "lease") == "" || token == 0 {
			return usageError{"--if-held needs --lease and --token, which a command below 'incumbent run' has in its environment"}
		}
		if err := p.condition([]string{"held", text(c, "lease"), strconv.FormatUint(token, 10)}); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name string
		take func(words []string) error
	}{
		{"if", p.condition},
		{"then", func(words []string) error { return p.operation(&p.to.Then, words) }},
		{"else", func(words []string) error { return p.operation(&p.to.Else, words) }},
	} {
		list, _ := c.Flags().GetStringArray(f.name)
		for _, statement := range list {
			words, err := wordsOf(statement)
			if err == nil {
				err = f.take(words)
			}
			if interrupted(err) {
				return err
			}
			if err != nil {
				return usageError{fmt.Sprintf("--%s %q: %v", f.name, statement, err)}
			}
		}
	}
	return nil
}

func printTxn(env *environment, form string, in *apiv1.TxnRequest, res *apiv1.TxnResponse) error {
	if form != formTable {
		return printProto(env.stdout, form, res)
	}
	ops := in.Then
	what := "all conditions hold"
	if !res.Succeeded {
		ops, what = in.Else, fmt.Sprintf("condition %d does not hold", res.Unmet)
	}
	if res.Repeated {
		what += ", as was answered before"
	}
	if err := say(env.stdout, "%s, at index %d", what, res.Index); err != nil {
		return err
	}
	t := &table{}
	for i, r := range res.Results {
		describeResult(t, ops[i], r)
	}
	return t.print(env.stdout)
}

// describeResult says on one line, of a list on one for each entry, what an operation
// did.
func describeResult(t *table, op *apiv1.TxnOperation, r *apiv1.TxnResult) {
	entry := func(verb string, e *apiv1.KeyValue) {
		t.row(verb, e.Key, strconv.FormatUint(e.ModifiedIndex, 10), strconv.Quote(string(e.Value)))
	}
	switch {
	case r.GetGet() != nil && r.GetGet().Entry == nil:
		t.row("get", op.GetGet().Key, "is not there")
	case r.GetGet() != nil:
		entry("get", r.GetGet().Entry)
	case r.GetList() != nil:
		for _, e := range r.GetList().Entries {
			entry("list", e)
		}
	case r.GetPut() != nil:
		t.row("put", op.GetPut().Key)
	case r.GetDelete() != nil:
		t.row("rm", op.GetDelete().Key, fmt.Sprintf("%d deleted", r.GetDelete().Deleted))
	case r.GetLock() != nil:
		t.row("lock", op.GetLock().Key)
	case r.GetUnlock() != nil:
		t.row("unlock", op.GetUnlock().Key)
	case r.GetRelease() != nil:
		t.row("release", op.GetRelease().GetName().GetName(), map[bool]string{true: "released", false: "was not held"}[r.GetRelease().Released])
	case r.GetClaim() != nil:
		t.row("claim", op.GetClaim().GetName().GetName(), fmt.Sprintf("token %d", r.GetClaim().GetLease().GetToken()))
	}
}

// wordsOf parts a statement: at blanks, save between double quotes, within which \
// keeps the next one from being the last. What begins with # behind a blank is left
// out.
func wordsOf(line string) ([]string, error) {
	var words []string
	for {
		line = strings.TrimLeft(line, " \t\r")
		switch {
		case line == "" || line[0] == '#':
			return words, nil
		case line[0] == '"':
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, fmt.Errorf("%s does not end with a quote", line)
			}
			word, err := strconv.Unquote(quoted)
			if err != nil {
				return nil, err
			}
			words, line = append(words, word), line[len(quoted):]
		default:
			n := strings.IndexAny(line, " \t\r")
			if n < 0 {
				n = len(line)
			}
			words, line = append(words, line[:n]), line[n:]
		}
	}
}
