package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func versionCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "print the version",
		Example: "  incumbent version -o json",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form, err := outputForm(c)
			if err != nil {
				return err
			}
			if form != formTable {
				return printJSON(env.stdout, form, map[string]string{
					"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			fmt.Fprintf(env.stdout, "incumbent %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	addOutput(c)
	return c
}

func manCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:     "man [DIR]",
		Short:   "write the manual pages",
		Long:    "Man writes one manual page a command into DIR, or the page of incumbent itself to standard output.",
		Example: "  incumbent man | man -l -\n  incumbent man /usr/local/share/man/man1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
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
