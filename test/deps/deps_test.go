// Package deps checks that imports between the packages of this module go one
// way, as docs/architecture.md draws it:
//
//	root ← core, vfs ← wal ← node ← lease, watch ← engine ← door/* ← server ← cmd
//
// The table below is the whole rule book. It speaks of folders, relative to the
// module's root; a rule holds for its folder and everything below it, unless a
// longer rule matches. A package may always import what lies in its own folder.
// Every package needs a rule: whoever adds a folder decides where it belongs.
//
// Test files are not checked: a test may put real parts together that the
// product keeps apart.
package deps

import (
	"slices"
	"testing"
)

// rule says what one folder may import of this module.
type rule struct {
	folder string   // "." is the root package; a "*" stands for one path element
	may    []string // folders, each with everything below it; "..." is anything of ours
	not    []string // what "..." does not mean
	never  []string // packages from elsewhere that would break the folder's promise
	std    bool     // nothing but the standard library besides
	why    string
}

var rules = []rule{
	{folder: ".", std: true, why: "the domain's words pull in nothing"},
	{folder: "api", may: []string{"api"}, why: "the public protocol knows only itself"},

	{folder: "core/corepb", why: "what is in the log depends on nothing that changes"},
	{
		folder: "core", may: []string{"."},
		never: []string{"crypto/rand", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os"},
		why:   "apply is deterministic: no I/O, no randomness, no log",
	},
	{folder: "core/wire", may: []string{"."}, why: "commands and records are written alike by core and by every family"},
	{
		folder: "core/*", may: []string{".", "core", "core/wire"},
		never: []string{"crypto/rand", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os"},
		why:   "a family knows core, and no other family",
	},
	{folder: "vfs", may: []string{"."}, why: "files know nothing of what is in them"},
	{folder: "wal", may: []string{".", "vfs"}, why: "the log stores bytes"},
	{folder: "overload", may: []string{"."}, why: "a refusal says when to come back, whatever was refused"},
	{folder: "node", may: []string{".", "overload", "vfs", "wal"}, why: "replication knows nothing of leases"},
	{folder: "node/peers", may: []string{".", "gate", "node", "rawio", "vfs"}, why: "the transport carries what the node says, and keeps its own small book"},
	{folder: "lease", may: []string{".", "core", "node", "overload"}, why: "the leader's clock stands on state and replication"},
	{folder: "watch", may: []string{".", "overload"}, why: "the hub serves every family, and knows none"},
	{folder: "engine", may: []string{".", "admit", "core", "lease", "node", "overload", "watch"}, why: "the composition of a group stands on its parts, and knows no door"},
	{folder: "backup", may: []string{".", "core", "engine", "vfs"}, why: "a backup is a group's state in a file: who takes it and puts it back is not its business"},
	{folder: "health", may: []string{".", "api", "core", "engine", "histogram", "lease"}, why: "running checks stands on catalog and engine, whichever door registered them"},
	{folder: "engine/enginetest", may: []string{".", "core", "engine", "lease", "node", "vfs"}, why: "tests of what stands on the engine run the engine"},

	{folder: "prepared", may: []string{".", "auth", "core"}, why: "a prepared query is keys and catalog, whichever door executes it"},

	{folder: "histogram", std: true, why: "what took how long whoever counts it knows"},
	{folder: "rawio", why: "system calls know nothing of what they carry"},
	{folder: "gate", may: []string{".", "rawio"}, why: "who is let in does not depend on what is spoken"},
	{folder: "park", may: []string{".", "rawio"}, why: "a parked connection has no protocol"},
	{folder: "accept", may: []string{".", "auth", "gate", "park", "rawio"}, why: "the way from a listener to being parked is that of every door"},
	{folder: "websocket", may: []string{"."}, why: "frames are bytes; whose they are the doors know"},
	{folder: "workqueue", std: true, why: "work is a function; what it does the doors know"},
	{folder: "engine/release", may: []string{".", "core", "engine", "watch"}, why: "waiting for the end of a holding is state and hub, for every door"},
	{folder: "linequeue", std: true, why: "what a line says, and where it goes, whoever hands it in knows"},
	{folder: "audit", may: []string{".", "linequeue"}, std: true, why: "a record is texts: what they say the doors know, and how they are escaped the root"},
	{folder: "admit", may: []string{"."}, why: "lanes know no protocol"},
	{folder: "auth", may: []string{"."}, why: "who you are does not depend on what you ask"},
	{folder: "tally", may: []string{".", "auth", "core"}, why: "what is open on a member is counted alike by every door"},
	{folder: "calls", may: []string{".", "admit", "auth"}, why: "what calls need of who makes them, for every door"},
	{folder: "auth/ca", may: []string{"."}, std: true, why: "what holds the cluster's keys pulls in nothing"},

	{
		folder: "door/*", may: []string{".", "api", "core", "engine", "lease", "watch", "accept", "gate", "park", "websocket", "workqueue", "admit", "audit", "auth", "calls", "health", "histogram", "overload", "prepared", "tally"},
		why: "a door knows its protocol and the engine's calls: no other door, no raft, no disk",
	},
	{
		folder: "cluster", may: []string{".", "api", "audit", "auth/ca", "backup", "core", "engine", "gate", "lease", "node", "vfs"},
		why: "who belongs to the cluster stands on the engine, and knows no door and not the server",
	},
	{folder: "console", may: []string{".", "api"}, why: "pages speak to the public interface"},
	{
		folder: "server", may: []string{"..."}, not: []string{"bench", "client", "cmd", "sim", "test"},
		why: "the composition of the server holds none of its users",
	},

	{folder: "client", may: []string{".", "api"}, why: "a client carries no server"},
	{folder: "bench", may: []string{".", "api", "client"}, why: "the load tool measures from outside"},
	{folder: "examples", may: []string{".", "api", "client"}, why: "an example shows what a user writes"},
	{folder: "cmd", may: []string{"..."}, not: []string{"sim", "test"}, why: "the binary ships no test code"},

	{folder: "sim", may: []string{"..."}, why: "the simulator drives the real parts"},
	{folder: "test", may: []string{"..."}, why: "tests put anything together"},
	{folder: "test/outside", may: []string{".", "api", "client"}, why: "tests from outside know what clients know"},
	{folder: "test/proxy", std: true, why: "a fault proxy moves bytes of any protocol"},
}

// exceptions are single imports that a rule forbids, each with its reason.
var exceptions = []struct{ from, to, why string }{
	{"core/policy", "auth", "what a policy says, and that it can be, is auth's; the family keeps it"},
	{"bench", "test/proxy", "the load tool cuts members off from one another with the same proxy as the tests"},
	{"bench", "park", "the load tool parks the connections of Juju's agents, to have tens of thousands; the bare echo runs on parked ones"},
}

// bucketNames are names of packages that say nothing about what is inside.
var bucketNames = []string{"util", "utils", "common", "types", "helpers", "constants", "misc", "shared"}

func TestImportsGoOneWay(t *testing.T) {
	packages, err := load("../..")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(packages, func(p pkg) bool { return p.folder == "." }) {
		t.Fatal("the root package was not found: the check looks at the wrong folder")
	}
	for _, v := range check(packages) {
		t.Error(v)
	}
}

func TestEveryRuleHasAReason(t *testing.T) {
	for _, r := range rules {
		if r.why == "" {
			t.Errorf("%s has no reason", r.folder)
		}
	}
	for _, e := range exceptions {
		if e.why == "" {
			t.Errorf("%s → %s has no reason", e.from, e.to)
		}
	}
}
