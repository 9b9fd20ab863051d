// Command incumbent is the coordination server, its client, its operator's
// tools and its load tool in one binary: noun then verb, one file per verb.
//
// Standard output is data, standard error is talk. Settings come from flags,
// then from the environment (INCUMBENT_…), then from a file, then from
// defaults. The exit codes are in exit.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// version is set by the linker (see the Makefile).
var version = "dev"

func main() {
	env := &environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.LookupEnv, environ: os.Environ}
	if isConsul(os.Args[0]) {
		os.Exit(runConsul(os.Args[1:], env))
	}
	os.Exit(run(os.Args[1:], env))
}

// run executes one command line and returns its exit code.
func run(args []string, env *environment) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	env.interrupted = ctx.Done()
	root := newRoot(env)
	root.SetArgs(args)
	if len(args) == 0 {
		root.SetArgs([]string{"--help"})
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitCode(err)
	text := errorText(err)
	usage := code == exitUsage
	var status statusError
	if cmd.CommandPath() == runPath && errors.As(err, &status) {
		usage = false // the command that was run says so, not this one
	}
	if form := errorForm(cmd, args, env); form != formTable {
		if text != "" { // else the data says it
			_ = printJSON(env.stderr, form, objectOf(err, cmd.CommandPath())) // there is nowhere to tell that this fails
		}
		return code
	}
	if text != "" {
		fmt.Fprintln(env.stderr, "incumbent: "+text)
	}
	if usage {
		fmt.Fprintln(env.stderr, helpFor(cmd.CommandPath()))
	}
	if usage && cmd.CommandPath() == runPath {
		return exitRunFault // 2 may be the code of the command that was to run
	}
	return code
}

func newRoot(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "incumbent",
		Short: "a coordination server for control planes with very many agents",
		Long: `Incumbent holds leader leases, with waiting queues, sessions and watches, for
control planes with very many agents. One binary: server, client, operator's
tools and load tool.

Settings: a flag, then INCUMBENT_<FLAG> in the environment, then the file named
by --config, then the default.`,
		Example: `  incumbent server --dev
  incumbent lease claim db/primary --holder me --ttl 15s
  incumbent run db/primary --ttl 15s -- ./primary
  incumbent bench run juju-leases`,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
	}
	root.PersistentFlags().String("config", "", "settings file (YAML, keys are flag names)")
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		warnUnknown(root, env)
		if _, err := resolveSettings(c, env); err != nil {
			return err
		}
		if c.Flag("output") == nil {
			return nil
		}
		return checkForm(c) // before anything is done that cannot be printed then
	}
	root.SetFlagErrorFunc(flagError)
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	root.CompletionOptions.HiddenDefaultCmd = false
	root.AddCommand(commands(env)...)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	requireVerbs(root)
	addExamples(root)
	return root
}

// commands returns the top-level nouns. Each file of this folder adds its own.
func commands(env *environment) []*cobra.Command {
	return []*cobra.Command{
		serverCommand(env),
		statusCommand(env),
		topCommand(env),
		eventsCommand(env),
		clusterCommand(env),
		leaseCommand(env),
		kvCommand(env),
		catalogCommand(env),
		presenceCommand(env),
		tableCommand(env),
		txnCommand(env),
		policyCommand(env),
		runCommand(env),
		benchCommand(env),
		backupCommand(env),
		credentialCommand(env),
		tlsCommand(env),
		doctorCommand(env),
		configCommand(env),
		debugCommand(env),
		versionCommand(env),
		manCommand(env),
	}
}

// requireVerbs makes an unknown verb of any noun a usage error that names the
// verbs nearest to what was typed. A noun alone prints its help.
func requireVerbs(c *cobra.Command) {
	for _, sub := range c.Commands() {
		requireVerbs(sub)
	}
	if !c.HasSubCommands() {
		return
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		msg := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
		c.SuggestionsMinimumDistance = 2
		if near := c.SuggestionsFor(args[0]); len(near) > 0 {
			msg += "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return usageError{msg}
	}
}

// flagError suggests the flag nearest to one that does not exist.
func flagError(c *cobra.Command, err error) error {
	text := err.Error()
	name, unknown := strings.CutPrefix(text, "unknown flag: --")
	if !unknown {
		return usageError{text}
	}
	known := make(map[string]bool)
	c.Flags().VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
	return usageError{text + nearest("--"+name, known)}
}

// addExamples gives the commands that cobra makes what all of ours have.
func addExamples(root *cobra.Command) {
	for path, example := range map[string]string{
		"help":                  "  incumbent help lease claim",
		"completion":            "  source <(incumbent completion bash)",
		"completion bash":       "  incumbent completion bash > /etc/bash_completion.d/incumbent",
		"completion fish":       "  incumbent completion fish > ~/.config/fish/completions/incumbent.fish",
		"completion powershell": "  incumbent completion powershell | Out-String | Invoke-Expression",
		"completion zsh":        "  incumbent completion zsh > \"${fpath[1]}/_incumbent\"",
	} {
		c, rest, err := root.Find(strings.Fields(path))
		if err == nil && len(rest) == 0 && c.Example == "" {
			c.Example = example
		}
	}
}

// environment is what a command meets of the outside world.
type environment struct {
	interrupted           <-chan struct{} // closed by Ctrl-C and SIGTERM; nil: never
	stdin, stdout, stderr *os.File
	getenv                func(string) (string, bool)
	environ               func() []string // nil: nothing is looked for there
}

// input is standard input to be read until its end. Ctrl-C and SIGTERM end it.
func (e *environment) input() io.Reader { return interruptible{e} }

type interruptible struct{ env *environment }

// Read implements io.Reader.
func (u interruptible) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	own, read := make([]byte, len(p)), make(chan result, 1)
	go func() { // which ends with the process, if nothing comes
		n, err := u.env.stdin.Read(own)
		read <- result{n, err}
	}()
	select {
	case r := <-read:
		return copy(p, own[:r.n]), r.err
	case <-u.env.interrupted:
		return 0, context.Canceled
	}
}
