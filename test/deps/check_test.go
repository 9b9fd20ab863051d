package deps

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/incumbent-dev/incumbent"

// pkg is a package of the module with the import paths of its non-test files.
type pkg struct {
	folder  string // relative to the module's root, "." for the root itself
	imports []string
}

// check returns one sentence for each import that no rule allows, in order.
func check(packages []pkg) []string {
	var violations []string
	for _, p := range packages {
		if slices.Contains(bucketNames, path.Base(p.folder)) {
			violations = append(violations, fmt.Sprintf("%s: a package is named for what it holds", p.folder))
		}
		r, own, found := ruleOf(p.folder)
		if !found {
			violations = append(violations, fmt.Sprintf("%s: no rule says what it may import", p.folder))
			continue
		}
		for _, imported := range p.imports {
			if reason := r.refuses(p.folder, own, imported); reason != "" {
				violations = append(violations, fmt.Sprintf("%s imports %s: %s (%s)", p.folder, imported, reason, r.why))
			}
		}
	}
	return violations
}

// ruleOf returns the longest rule that matches a folder, and the folder that
// the rule's pattern stands for there.
func ruleOf(folder string) (best rule, own string, found bool) {
	for _, r := range rules {
		matched, ok := matchFolder(r.folder, folder)
		if ok && (!found || len(matched) > len(own)) {
			best, own, found = r, matched, true
		}
	}
	return best, own, found
}

// matchFolder reports whether folder is, or lies below, what pattern names, and
// returns the part of folder that the pattern stands for. "." matches only itself.
func matchFolder(pattern, folder string) (string, bool) {
	if pattern == "." || folder == "." {
		return pattern, pattern == folder
	}
	want, have := strings.Split(pattern, "/"), strings.Split(folder, "/")
	if len(have) < len(want) {
		return "", false
	}
	for i, w := range want {
		if w != "*" && w != have[i] {
			return "", false
		}
	}
	return path.Join(have[:len(want)]...), true
}

// refuses says why the rule forbids an import, or "". The package lies in
// folder; own is the folder that the rule's pattern stands for there.
func (r rule) refuses(folder, own, imported string) string {
	target, ours := inModule(imported)
	switch {
	case !ours && slices.Contains(r.never, imported):
		return "never there"
	case !ours && r.std && strings.Contains(strings.Split(imported, "/")[0], "."):
		return "standard library only"
	case !ours || within(target, []string{own}):
		return ""
	case within(target, r.may) && !within(target, r.not):
		return ""
	}
	for _, e := range exceptions {
		if within(folder, []string{e.from}) && within(target, []string{e.to}) {
			return ""
		}
	}
	return "wrong way"
}

func inModule(imported string) (folder string, ours bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

func within(folder string, folders []string) bool {
	return slices.ContainsFunc(folders, func(f string) bool {
		_, ok := matchFolder(f, folder)
		return ok || f == "..."
	})
}

// TestCheckFails shows, on packages that do not exist, that each kind of wrong
// import is found and that the right ones pass.
func TestCheckFails(t *testing.T) {
	ours := func(folders ...string) []string {
		var paths []string
		for _, f := range folders {
			paths = append(paths, path.Join(module, f))
		}
		return paths
	}
	for _, c := range []struct {
		name   string
		folder string
		imp    []string
		want   int
	}{
		{"root on the standard library", ".", []string{"fmt", "crypto/rand"}, 0},
		{"root on a library", ".", []string{"github.com/tidwall/btree"}, 1},
		{"root on core", ".", ours("core"), 1},
		{"core on root and its protobuf", "core", append(ours(".", "core/corepb"), "github.com/tidwall/btree"), 0},
		{"core on the clock's owner", "core", ours("lease"), 1},
		{"core on randomness and files", "core", []string{"crypto/rand", "os", "sort"}, 2},
		{"commands on core", "core/corepb", ours("core"), 1},
		{"vfs on wal", "vfs", ours("wal"), 1},
		{"wal on vfs", "wal", ours(".", "vfs"), 0},
		{"wal on node", "wal", ours("node"), 1},
		{"node on wal", "node", ours(".", "vfs", "wal"), 0},
		{"node on leases", "node", ours("lease", "core"), 2},
		{"lease on watch", "lease", ours("watch"), 1},
		{"watch on lease", "watch", ours("lease"), 1},
		{"lease on the layers below", "lease", ours(".", "core", "core/corepb", "node"), 0},
		{"lease on a door", "lease", ours("door/native"), 1},
		{"door on the engine's calls", "door/juju", ours(".", "lease", "watch", "park", "admit", "auth"), 0},
		{"door on its own parts", "door/juju", ours("door/juju/rpc"), 0},
		{"part of a door on its door", "door/juju/rpc", ours("door/juju"), 0},
		{"door on another door", "door/juju", ours("door/native"), 1},
		{"part of a door on another door", "door/juju/rpc", ours("door/native/frame"), 1},
		{"door on node", "door/native", ours("node"), 1},
		{"door on the log", "door/native", ours("wal", "vfs"), 2},
		{"park on root", "park", ours("."), 0},
		{"park on anything else", "park", ours("admit", "core"), 2},
		{"admit on auth", "admit", ours("auth"), 1},
		{"auth on admit", "auth", ours("admit"), 1},
		{"client on the public protocol", "client", ours(".", "api/incumbent/v1"), 0},
		{"client on core", "client", ours("core"), 1},
		{"bench on the client", "bench/scenario", ours(".", "api/incumbent/v1", "client", "bench"), 0},
		{"bench on park, by exception", "bench/echo", ours("park"), 0},
		{"client on park, no exception", "client", ours("park"), 1},
		{"bench on every part of the server", "bench", ours("core", "node", "lease", "watch", "wal", "server", "door/native"), 7},
		{"server on everything below", "server", ours("door/native", "node", "wal", "park", "console"), 0},
		{"server on its users", "server", ours("client", "bench", "cmd/incumbent", "sim"), 4},
		{"cluster on the engine and the transport", "cluster", ours("api/incumbent/v1", "auth/ca", "engine", "node/peers"), 0},
		{"cluster on what stands on it", "cluster", ours("server", "door/native", "park", "admit"), 4},
		{"binary on all of it", "cmd/incumbent", ours("server", "client", "bench"), 0},
		{"binary on test code", "cmd/incumbent", ours("sim", "test/blackbox"), 2},
		{"simulator on all of it", "sim", ours("core", "node", "wal", "lease"), 0},
		{"a folder whose name begins like another", "corex", nil, 1},
		{"a folder without a rule", "queue", ours("core"), 1},
		{"a bucket", "node/util", nil, 1},
		{"a bucket without a rule", "common", nil, 2},
		{"another module with a longer name", "park", []string{module + "-tools/core"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := check([]pkg{{folder: c.folder, imports: c.imp}})
			if len(got) != c.want {
				t.Errorf("%d violations, want %d: %q", len(got), c.want, got)
			}
		})
	}
}

func TestViolationNamesBothEndsAndTheReason(t *testing.T) {
	got := check([]pkg{{folder: "door/juju", imports: []string{module + "/node"}}})
	want := []string{
		"door/juju imports " + module + "/node: wrong way " +
			"(a door knows its protocol and the engine's calls: no other door, no raft, no disk)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
