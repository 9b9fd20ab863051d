package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// envPrefix starts the name of every environment variable that is a setting.
const envPrefix = "INCUMBENT_"

// setting is one flag's value and where it came from.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"` // flag, environment, file, default
}

// sourceKey is the annotation of a flag that holds a value not given on the
// command line: a later resolution may change it.
const sourceKey = "incumbent_source"

// resolveSettings fills every flag that the command line left alone from the
// environment, then from the settings file, and says where each came from. A
// key of the file that is no flag of any command is an error with its line.
// It may be called again, and then takes what the file says by then.
func resolveSettings(c *cobra.Command, env *environment) ([]setting, error) {
	return resolveSettingsIn(c, c.Root(), env)
}

// resolveSettingsIn does so for a command outside the tree of root.
func resolveSettingsIn(c, root *cobra.Command, env *environment) ([]setting, error) {
	path, fromEnv := c.Flags().Lookup("config").Value.String(), false
	if path == "" {
		path, fromEnv = lookupEnv(env, "config")
	}
	file, wrong := readSettings(path, root)
	if len(wrong) > 0 {
		if fromEnv {
			return nil, usageError{envPrefix + "CONFIG: " + wrong[0].Error()}
		}
		return nil, wrong[0]
	}
	out, wrong := resolveFlags(c, env, file, path)
	if len(wrong) > 0 {
		return out, wrong[0]
	}
	return out, nil
}

// resolveFlags fills a command's flags and returns all that is wrong with their values.
func resolveFlags(c *cobra.Command, env *environment, file map[string]fileSetting, path string) (out []setting, wrong []error) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		s, err := resolveFlag(f, env, file, path)
		if err != nil {
			wrong = append(wrong, err)
		}
		if f.Name != "help" {
			out = append(out, s)
		}
	})
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, wrong
}

func resolveFlag(f *pflag.Flag, env *environment, file map[string]fileSetting, path string) (setting, error) {
	source, value, where := "default", "", ""
	_, ours := f.Annotations[sourceKey]
	if typed(f) {
		return setting{Name: f.Name, Value: f.Value.String(), Source: "flag"}, nil
	}
	if v, ok := lookupEnv(env, f.Name); ok {
		source, value, where = "environment", v, envName(f.Name)
	} else if v, ok := file[f.Name]; ok {
		source, value, where = "file", v.value, fmt.Sprintf("%s:%d: %s", path, v.line, f.Name)
	} else if ours {
		value, where = defaultText(f), f.Name
	}
	if where != "" {
		if err := setFlag(f, value, source); err != nil {
			return setting{}, usageError{fmt.Sprintf("%s: %v", where, err)}
		}
	}
	return setting{Name: f.Name, Value: f.Value.String(), Source: source}, nil
}

// typed reports whether the command line gave the flag: it is Changed, too, by the
// environment and by a settings file, which are for other commands as well.
func typed(f *pflag.Flag) bool {
	_, elsewhere := f.Annotations[sourceKey]
	return f.Changed && !elsewhere
}

// setFlag sets a flag's value and remembers that no command line did.
func setFlag(f *pflag.Flag, v, source string) error {
	// A repeatable flag appends to what it has, unless told to replace it.
	if list, ok := f.Value.(pflag.SliceValue); ok {
		if err := list.Replace(nil); err != nil {
			return err
		}
	}
	// First of all: a value that cannot be read is half set, and the next resolution
	// has to know that it is not the command line's.
	if f.Annotations == nil {
		f.Annotations = make(map[string][]string)
	}
	f.Annotations[sourceKey] = []string{source}
	f.Changed = true
	return f.Value.Set(v)
}

// defaultText is the default in the form that Set reads: a list is printed in
// brackets.
func defaultText(f *pflag.Flag) string {
	if _, ok := f.Value.(pflag.SliceValue); ok {
		return strings.Trim(f.DefValue, "[]")
	}
	return f.DefValue
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func lookupEnv(env *environment, flag string) (string, bool) {
	v, ok := env.getenv(envName(flag))
	return v, ok && v != ""
}

type fileSetting struct {
	value string
	line  int
}

// readSettings reads a settings file: one flat YAML mapping. Lists are joined
// by commas, the form in which a repeatable flag takes them. It returns all that is
// wrong, in the order of lines.
func readSettings(path string, root *cobra.Command) (map[string]fileSetting, []error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, []error{usageError{"settings file " + path + " does not exist"}}
	}
	if err != nil {
		return nil, []error{usageError{err.Error()}}
	}
	return parseSettings(path, data, knownFlags(root))
}

// parseSettings reads the contents of the settings file path.
func parseSettings(path string, data []byte, known map[string]bool) (map[string]fileSetting, []error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, []error{usageError{path + ": " + err.Error()}}
	}
	out := make(map[string]fileSetting)
	if len(doc.Content) == 0 {
		return out, nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, []error{usageError{fmt.Sprintf("%s:%d: a settings file is a mapping of flag names to values", path, top.Line)}}
	}
	var wrong []error
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, val := top.Content[i], top.Content[i+1]
		text, err := scalar(val)
		_, twice := out[key.Value]
		switch {
		case !known[key.Value]:
			wrong = append(wrong, usageError{fmt.Sprintf("%s:%d: unknown setting %q%s", path, key.Line, key.Value, nearest(key.Value, known))})
		case twice:
			wrong = append(wrong, usageError{fmt.Sprintf("%s:%d: setting %q stands here twice", path, key.Line, key.Value)})
		case err != nil:
			wrong = append(wrong, usageError{fmt.Sprintf("%s:%d: %s: %v", path, val.Line, key.Value, err)})
		default:
			out[key.Value] = fileSetting{text, key.Line}
		}
	}
	return out, wrong
}

// joinVariable holds a join token. It is a setting that is no flag: everybody on the
// machine may read a command line.
const joinVariable = "JOIN"

// joinToken is that of the environment; "": there is none.
func joinToken(env *environment) string {
	token, _ := env.getenv(envPrefix + joinVariable)
	return token
}

// childVariables are what 'incumbent run' tells its command, besides the flags.
var childVariables = []string{"LEASE", "TOKEN", "TTL_MS", "DEADLINE_MS"}

// warnUnknown warns of variables that look like settings and are none: a mistyped one
// would be the default without a word.
func warnUnknown(root *cobra.Command, env *environment) {
	if env.environ == nil {
		return
	}
	known := make(map[string]bool)
	for name, ok := range knownFlags(root) {
		known[envName(name)] = ok
	}
	for _, name := range append([]string{joinVariable}, childVariables...) {
		known[envPrefix+name] = true
	}
	for _, pair := range env.environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, envPrefix) && !known[name] {
			fmt.Fprintf(env.stderr, "incumbent: warning: %s is no setting%s\n", name, nearest(name, known))
		}
	}
}

func scalar(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.Value, nil
	case yaml.SequenceNode:
		parts := make([]string, len(n.Content))
		for i, c := range n.Content {
			if c.Kind != yaml.ScalarNode {
				return "", errors.New("a list holds plain values only")
			}
			parts[i] = c.Value
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("a setting is a plain value or a list of them")
}

func knownFlags(c *cobra.Command) map[string]bool {
	known := make(map[string]bool)
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		add := func(f *pflag.Flag) { known[f.Name] = f.Name != "help" }
		c.LocalFlags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(c)
	return known
}

// nearest suggests the known name closest to a mistyped one.
func nearest(name string, known map[string]bool) string {
	best, dist := "", 3
	for k := range known {
		d := editDistance(name, k)
		if d < dist || d == dist && k < best {
			best, dist = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
