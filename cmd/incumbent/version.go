package main

import (
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "print the version",
		Example: "  incumbent version -o json",
		Args:    exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			if form := formOf(c); form != formTable {
				return printJSON(env.stdout, form, map[string]string{
					"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				})
			}
			return say(env.stdout, "incumbent %s (%s, %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
	addOutput(c)
	return c
}
