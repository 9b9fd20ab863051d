package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// peerTool is the load tool with the clients of other systems. It is built from
// a module of its own, so that their dependencies are not this binary's.
const peerTool = "incumbent-bench"

// peerFlags are those of 'bench run' that the tool has too.
var peerFlags = []string{"peer", "members", "target", "pid", "tls", "set", "dir", "data-dir", "output"}

// runPeer hands the scenario to the tool that knows the peer's client.
func runPeer(c *cobra.Command, env *environment, scenario, peer string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	path := filepath.Join(filepath.Dir(self), peerTool)
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(peerTool); err != nil {
			return usageError{fmt.Sprintf("--peer %s needs %s, which 'make peers' builds beside this binary", peer, peerTool)}
		}
	}
	args, err := peerArgs(c, scenario)
	if err != nil {
		return err
	}
	child := exec.CommandContext(c.Context(), path, args...)
	child.Stdin, child.Stdout, child.Stderr = env.stdin, env.stdout, env.stderr
	return childStatus(child.Run())
}

// peerArgs is the command line of the peer's tool: the settings as they were
// resolved, wherever each came from. One that the tool does not have is refused
// if it was typed; what the environment or a file says is for other runs too.
func peerArgs(c *cobra.Command, scenario string) ([]string, error) {
	args := []string{"run"}
	var refused error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch {
		case !f.Changed:
		case slices.Contains(peerFlags, f.Name):
			for _, v := range flagValues(c, f) {
				args = append(args, "--"+f.Name+"="+v)
			}
		case f.Name != "config" && typed(f) && refused == nil:
			refused = usageError{fmt.Sprintf("--%s does not go with --peer", f.Name)}
		}
	})
	return append(args, "--", scenario), refused
}

// flagValues are what the flag is to be given, once for each, to have its value.
func flagValues(c *cobra.Command, f *pflag.Flag) []string {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.GetSlice()
	}
	if f.Value.Type() != "stringToString" {
		return []string{f.Value.String()}
	}
	settings, _ := c.Flags().GetStringToString(f.Name)
	var out []string
	for key, v := range settings {
		pair := key + "=" + v
		if strings.Count(pair, "=") > 1 {
			pair = csvLine(pair) // only with one "=" is it taken as it is
		}
		out = append(out, pair)
	}
	slices.Sort(out)
	return out
}

func csvLine(field string) string {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write([]string{field}) // into memory
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}
