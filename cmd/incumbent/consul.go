package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent/door/consul"
)

// Harnesses of Consul's clients start a program named consul. Under that name this one
// is a server whose door for Consul's clients is open, and knows as much of that
// program's command line as they use.

// consulName is the name under which it is a Consul.
const consulName = "consul"

// isConsul reports whether the program was started under that name.
func isConsul(name string) bool { return strings.TrimSuffix(filepath.Base(name), ".exe") == consulName }

// runConsul executes a command line of Consul's and returns its exit code.
func runConsul(args []string, env *environment) int {
	switch {
	case len(args) > 0 && (args[0] == "version" || args[0] == "-version" || args[0] == "--version"):
		return consulVersion(args[1:], env)
	case len(args) > 0 && args[0] == "agent":
		own, clean, err := consulAgent(args[1:])
		defer clean()
		if err != nil {
			fmt.Fprintln(env.stderr, "consul: "+err.Error())
			return exitUsage
		}
		return run(own, env)
	}
	fmt.Fprintln(env.stderr, "consul: this is incumbent, which knows: consul agent -config-file FILE, consul agent -dev, consul version")
	return exitUsage
}

func consulVersion(args []string, env *environment) int {
	for i, a := range args {
		if f := strings.TrimLeft(a, "-"); f == "format=json" || f == "format" && i+1 < len(args) && args[i+1] == "json" {
			fmt.Fprintf(env.stdout, "{\"Version\":%q}\n", consul.Version)
			return exitOK
		}
	}
	fmt.Fprintf(env.stdout, "Consul v%s\nanswered by incumbent %s\n", consul.Version, version)
	return exitOK
}

// consulConfig is what is read of a configuration of Consul's; all else is left alone.
type consulConfig struct {
	NodeName   string `json:"node_name"`
	NodeID     string `json:"node_id"`
	DataDir    string `json:"data_dir"`
	BindAddr   string `json:"bind_addr"`
	ClientAddr string `json:"client_addr"`
	Datacenter string `json:"datacenter"`
	LogLevel   string `json:"log_level"`
	Addresses  struct {
		HTTP string `json:"http"`
	} `json:"addresses"`
	Ports struct {
		HTTP int `json:"http"`
	} `json:"ports"`
}

// consulAgent translates a command line of "consul agent" into one of ours. What clean
// does comes after that has run.
func consulAgent(args []string) (own []string, clean func(), err error) {
	clean = func() {}
	var c consulConfig
	dev := false
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		next := func() string {
			if !given && i+1 < len(args) {
				i++
				return args[i]
			}
			return value
		}
		switch name {
		case "dev":
			dev = true
		case "config-file":
			err = c.readFile(next())
		case "config-dir":
			err = c.readDir(next())
		case "node":
			c.NodeName = next()
		case "node-id":
			c.NodeID = next()
		case "data-dir":
			c.DataDir = next()
		case "bind":
			c.BindAddr = next()
		case "client":
			c.ClientAddr = next()
		case "datacenter":
			c.Datacenter = next()
		case "log-level":
			c.LogLevel = next()
		case "http-port":
			c.Ports.HTTP, err = strconv.Atoi(next())
		}
		if err != nil {
			return nil, clean, err
		}
	}
	if c.DataDir == "" {
		if !dev {
			return nil, clean, fmt.Errorf("data_dir is missing")
		}
		if c.DataDir, err = os.MkdirTemp("", "incumbent-consul-"); err != nil {
			return nil, clean, err
		}
		dir := c.DataDir
		clean = func() { _ = os.RemoveAll(dir) } // a temporary folder's end is no more than tidy
	}
	return c.command(), clean, nil
}

func (c *consulConfig) readFile(name string) error {
	b, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(b, c)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// readDir reads a folder's files in the order of their names.
func (c *consulConfig) readDir(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := c.readFile(f); err != nil {
			return err
		}
	}
	return nil
}

// command is our command line. Ports 0 and less are any that are free.
func (c *consulConfig) command() []string {
	host, port := "127.0.0.1", 8500
	for _, h := range []string{c.ClientAddr, c.Addresses.HTTP} {
		if h != "" {
			host = h
		}
	}
	if c.Ports.HTTP != 0 {
		port = max(0, c.Ports.HTTP)
	}
	own := []string{
		"server", "--dev", "--data-dir", c.DataDir, "--listen", "127.0.0.1:0",
		"--consul-listen", net.JoinHostPort(host, strconv.Itoa(port)), "--log-level", consulLevel(c.LogLevel),
	}
	add := func(flag, value string) {
		if value != "" {
			own = append(own, flag, value)
		}
	}
	add("--name", c.NodeName)
	add("--consul-node", c.NodeName)
	add("--consul-node-id", c.NodeID)
	add("--consul-datacenter", c.Datacenter)
	if ip := net.ParseIP(c.BindAddr); ip != nil && !ip.IsUnspecified() {
		add("--consul-node-address", c.BindAddr)
	}
	return own
}

// consulLevel is our word for a level of Consul's log.
func consulLevel(level string) string {
	switch strings.ToLower(level) {
	case "trace", "debug":
		return "debug"
	case "warn", "warning":
		return "warn"
	case "err", "error":
		return "error"
	default:
		return "info"
	}
}
