package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

func manCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:     "man [DIR]",
		Short:   "write the manual pages",
		Long:    "Man writes one manual page a command into DIR, or the page of incumbent itself to standard output.",
		Example: "  incumbent man | man -l -\n  incumbent man /usr/local/share/man/man1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			literal(c.Root(), make(map[*pflag.Flag]bool))
			header := &doc.GenManHeader{Title: "INCUMBENT", Section: "1", Source: "incumbent " + version, Manual: "Incumbent"}
			if len(args) == 0 {
				return doc.GenMan(c.Root(), header, env.stdout)
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return doc.GenManTree(c.Root(), header, args[0])
		},
	}
}

// literal makes the texts of a command and those below it what the page shall say:
// they are plain, and pages are made from Markdown, to which <FLAG> is HTML. Flags
// that commands share are done once.
func literal(c *cobra.Command, done map[*pflag.Flag]bool) {
	c.Short, c.Long = markdown(c.Short), markdown(c.Long)
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !done[f] {
			done[f] = true
			f.Usage = markdown(f.Usage)
		}
	})
	for _, sub := range c.Commands() {
		literal(sub, done)
	}
}

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "<", `\<`, ">", `\>`, "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "]", `\]`)

// markdown is the Markdown of a plain text. Lines that are set in by a tab or four
// spaces are code there too.
func markdown(plain string) string {
	var b strings.Builder
	for line := range strings.Lines(plain) {
		if !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "    ") {
			line = markdownEscapes.Replace(line)
		}
		b.WriteString(line)
	}
	return b.String()
}
