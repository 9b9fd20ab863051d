package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// policyCommand is the noun of policies.
func policyCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "policy",
		Short: "say who may do what",
		Long: `Policies say what agents and observers may do, by kind of state, namespace, model and
name. While there is none a table of kinds holds; as soon as there is one, what none
allows is denied. Operators may always do everything. See docs/policies.md.`,
		Example: `  incumbent policy set units -f units.yaml
  incumbent policy test --as agent:mysql/0 --verb write --kind leases mysql/0
  incumbent policy ls`,
	}
	addServerFlags(c)
	c.AddCommand(policySet(env), policyGet(env), policyList(env), policyRemove(env), policyTest(env))
	return c
}

// policyFile is a policy as people write it. Fields that only the server gives are
// taken, so that what 'policy get' prints can be set again, and do not count.
type policyFile struct {
	Name  string       `yaml:"name,omitempty"`
	For   []string     `yaml:"for"`
	Rules []policyRule `yaml:"rules"`
}

type policyRule struct {
	Kind      string   `yaml:"kind"`
	Namespace string   `yaml:"namespace,omitempty"`
	Model     string   `yaml:"model,omitempty"`
	Name      string   `yaml:"name,omitempty"`
	Verbs     []string `yaml:"verbs,flow"`
}

// readPolicy reads a file of one policy. A field that does not exist is an error: a
// misspelt one would allow something else than was meant.
func readPolicy(raw []byte) (*policyFile, error) {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	f := &policyFile{}
	if err := d.Decode(f); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, usageError{"the policy is empty"}
		}
		return nil, usageError{"the file is not a policy: " + err.Error()}
	}
	if err := d.Decode(&policyFile{}); !errors.Is(err, io.EOF) {
		return nil, usageError{"the file has more than one policy"}
	}
	return f, nil
}

func (f *policyFile) message(name string) *apiv1.Policy {
	p := &apiv1.Policy{Name: name, For: f.For}
	for _, r := range f.Rules {
		p.Rules = append(p.Rules, &apiv1.PolicyRule{Kind: r.Kind, Namespace: r.Namespace, Model: r.Model, Name: r.Name, Verbs: r.Verbs})
	}
	return p
}

func policyFileOf(p *apiv1.Policy) *policyFile {
	f := &policyFile{Name: p.Name, For: p.For, Rules: []policyRule{}}
	for _, r := range p.Rules {
		f.Rules = append(f.Rules, policyRule{Kind: r.Kind, Namespace: r.Namespace, Model: r.Model, Name: r.Name, Verbs: r.Verbs})
	}
	return f
}

func policySet(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "store a policy",
		Long: `Set stores the policy that is in --file under NAME, in the place of the one that is
there. It holds at once on every member, and for connections that are open. With
--if-index it is stored only if the one that is there was last modified then, 0: only
if there is none; exit code 6: it is otherwise.

  for: ["agent:mysql/*"]
  rules:
    - kind: leases
      namespace: db
      name: "{parent}"
      verbs: [see, watch, write]`,
		Example: `  incumbent policy set units -f units.yaml
  incumbent policy set units -f - --if-index 0 < units.yaml`,
		Args: exactArgs("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			file := text(c, "file")
			if file == "" {
				return usageError{"--file is missing: name the file of the policy, or - for standard input"}
			}
			if file != "-" {
				file = "@" + file
			}
			raw, err := valueOf(env, file)
			if err != nil {
				return err
			}
			f, err := readPolicy(raw)
			if err != nil {
				return err
			}
			if f.Name != "" && f.Name != args[0] {
				return usageError{fmt.Sprintf("the file is policy %q, not %q", f.Name, args[0])}
			}
			return withClient(c, func(cl *client.Client) error {
				p, err := cl.SetPolicy(c.Context(), f.message(args[0]), ifIndex(c))
				if err != nil {
					return err
				}
				return printMessage(c, env, p, "policy %s set at index %d", p.Name, p.ModifiedIndex)
			})
		},
	}
	c.Flags().StringP("file", "f", "", "file with the policy, - for standard input")
	addIfIndex(c)
	addOutput(c)
	return c
}

func addIfIndex(c *cobra.Command) {
	c.Flags().Uint64("if-index", 0, "only if it was last modified at this index, 0: only if it is not there")
}

func ifIndex(c *cobra.Command) *incumbent.Index {
	if !c.Flags().Changed("if-index") {
		return nil
	}
	n, _ := c.Flags().GetUint64("if-index")
	at := incumbent.Index(n)
	return &at
}

func policyGet(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "get NAME",
		Short: "print a policy",
		Long: `Get prints the policy of NAME as a file that 'policy set' takes, and who changed it
last as a comment; with -o json or jsonl all that there is about it. Exit code 3: it
is not there.`,
		Example: "  incumbent policy get units > units.yaml",
		Args:    exactArgs("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			return withClient(c, func(cl *client.Client) error {
				p, err := cl.Policy(c.Context(), args[0])
				if err != nil {
					return err
				}
				if form != formTable {
					return printProto(env.stdout, form, p)
				}
				out, err := yaml.Marshal(policyFileOf(p))
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(env.stdout, "# index %d, by %s, %s\n%s", p.ModifiedIndex, orDash(p.ModifiedBy), day(p.ModifiedUnixMs), out)
				return err
			})
		},
	}
	addOutput(c)
	return c
}

func policyList(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "ls",
		Short:   "list policies",
		Long:    `Ls lists the policies, in the order of their names.`,
		Example: "  incumbent policy ls\n  incumbent policy ls -o jsonl | jq -r .name",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			return withClient(c, func(cl *client.Client) error {
				all, err := cl.Policies(c.Context())
				if err != nil {
					return err
				}
				t := &table{header: []string{"policy", "for", "rules", "modified", "by"}}
				for _, p := range all {
					t.row(p.Name, principalsOf(p), strconv.Itoa(len(p.Rules)), strconv.FormatUint(p.ModifiedIndex, 10), orDash(p.ModifiedBy))
				}
				return printRecords(env.stdout, formOf(c), all, t)
			})
		},
	}
	addOutput(c)
	return c
}

// principalsOf are the first principals of a policy.
func principalsOf(p *apiv1.Policy) string {
	const shown = 3
	if n := len(p.For) - shown; n > 0 {
		return strings.Join(p.For[:shown], " ") + fmt.Sprintf(" +%d", n)
	}
	return strings.Join(p.For, " ")
}

func policyRemove(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "rm NAME",
		Short: "delete a policy",
		Long: `Rm deletes the policy of NAME; exit code 3: it is not there. With the last one that
goes the table of kinds holds again.`,
		Example: "  incumbent policy rm units",
		Args:    exactArgs("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return withClient(c, func(cl *client.Client) error {
				was, err := cl.DeletePolicy(c.Context(), args[0], ifIndex(c))
				if err == nil && !was {
					err = incumbent.Errorf(incumbent.NotFound, "policy %q is not there", args[0])
				}
				if err != nil {
					return err
				}
				return printMessage(c, env, &apiv1.DeletePolicyResponse{Deleted: true}, "policy %s deleted", args[0])
			})
		},
	}
	addIfIndex(c)
	addOutput(c)
	return c
}

func policyTest(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "test [NAME]",
		Short: "say whether something would be allowed, and by which rule",
		Long: `Test says whether the principal --as would be allowed --verb on state of --kind that
is called NAME, and by which rule of which policy. Of sessions NAME is the principal
that opened them. With --tree it asks about all whose names begin with NAME. Exit
code 7: it would be denied.`,
		Example: `  incumbent policy test --as agent:mysql/0 --verb write --kind leases mysql/0
  incumbent policy test --as agent:backup --verb see --kind keys --namespace app config/ --tree
  incumbent policy test --as observer:dash --verb see --kind cluster`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			q := &apiv1.TestPolicyRequest{
				Principal: text(c, "as"), Verb: text(c, "verb"), Kind: text(c, "kind"),
				Namespace: text(c, "namespace"), Model: text(c, "model"), Holder: text(c, "holder"), Name: first(args),
			}
			for name, is := range map[string]string{"as": q.Principal, "verb": q.Verb, "kind": q.Kind} {
				if is == "" {
					return usageError{"--" + name + " is missing"}
				}
			}
			q.Prefix, _ = c.Flags().GetBool("tree")
			return withClient(c, func(cl *client.Client) error {
				a, err := cl.TestPolicy(c.Context(), q)
				if err != nil {
					return err
				}
				word := "denied"
				if a.Allowed {
					word = "allowed"
				}
				if err := printMessage(c, env, a, "%s: %s", word, a.Reason); err != nil || a.Allowed {
					return err
				}
				return statusError{code: exitDenied}
			})
		},
	}
	f := c.Flags()
	f.String("as", "", "the principal, as agent:mysql/0")
	f.String("verb", "", "see, watch, write, release-others or administer")
	f.String("kind", "", "leases, sessions, keys, nodes, services, tables or cluster")
	f.String("namespace", incumbent.DefaultNamespace, "namespace, of leases and keys")
	f.String("model", incumbent.DefaultModel, "model, of leases")
	f.String("holder", "", "as whom it would hold a lease; by default as itself")
	f.Bool("tree", false, "all whose names begin with NAME")
	addOutput(c)
	for flag, words := range map[string][]string{
		"verb": {"see", "watch", "write", "release-others", "administer"},
		"kind": {"leases", "sessions", "keys", "cluster", "nodes", "services", "tables"},
	} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // the flags are there
	}
	return c
}
