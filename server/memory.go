package server

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"slices"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/watch"
)

const (
	minMemoryLimit = 64 << 20 // bytes, of --memory-limit

	// memoryUnknown is the limit where nobody says how much memory there is.
	memoryUnknown = 4 << 30

	// unlimited is more than any machine has: control groups without a limit say so
	// in different ways.
	unlimited = 1 << 46
)

// DefaultMemoryLimit is --memory-limit where nobody sets it, in bytes.
func DefaultMemoryLimit() int64 { return defaultMemoryLimit(os.DirFS("/")) }

// defaultMemoryLimit is three quarters of the memory that there is: that of the
// process's control group if it has a limit, or of the machine. Beyond memory.high a
// group is slowed down rather than ended, so it counts as a limit too. The rest is for
// the kernel's buffers and pages of files, which a control group is charged for.
func defaultMemoryLimit(root fs.FS) int64 {
	have := int64(unlimited)
	for _, name := range memoryFiles(root) {
		data, err := fs.ReadFile(root, name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 {
			have = min(have, n)
		}
	}
	if data, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		if _, after, ok := strings.Cut(string(data), "MemTotal:"); ok {
			if f := strings.Fields(after); len(f) > 0 {
				if kib, err := strconv.ParseInt(f[0], 10, 64); err == nil && kib > 0 {
					have = min(have, kib<<10)
				}
			}
		}
	}
	if have == unlimited {
		return memoryUnknown
	}
	return max(have/4*3, minMemoryLimit)
}

// cgroups is where control groups are mounted.
const cgroups = "sys/fs/cgroup"

// memoryFiles are where limits of control groups stand, of both versions: each group's
// above this process's own, too. Within a container, its own is the root.
func memoryFiles(root fs.FS) []string {
	v1, v2 := []string{"memory.limit_in_bytes"}, []string{"memory.max", "memory.high"}
	files := append(limitFiles(cgroups, "/", v2), limitFiles(path.Join(cgroups, "memory"), "/", v1)...)
	data, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return files
	}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch controllers, group := parts[1], parts[2]; {
		case controllers == "":
			files = append(files, limitFiles(cgroups, group, v2)...)
		case slices.Contains(strings.Split(controllers, ","), "memory"):
			// Controllers that share a hierarchy are mounted under all their names; most systems link each to that.
			files = append(files, limitFiles(path.Join(cgroups, "memory"), group, v1)...)
			files = append(files, limitFiles(path.Join(cgroups, controllers), group, v1)...)
		}
	}
	return files
}

// limitFiles are the files of these names in a control group of a hierarchy and in those above it.
func limitFiles(hierarchy, group string, names []string) (files []string) {
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		for _, name := range names {
			files = append(files, path.Join(hierarchy, dir, name))
		}
		if dir == "/" {
			return files
		}
	}
}

// memoryShare is the part of --memory-limit that Go's heap and stacks may fill
// before the collector works harder; the rest is the program itself.
const memoryShare = 0.9

// How much garbage there may be before the collector runs: as much as lives, in a
// small heap. In a large one that would be half of the resident memory. But a collection
// goes through all that lives, so that a large heap in which much is made would spend
// a fourth of its processor time on them: while that is so, there may be as much garbage
// as is made in a few seconds, within bounds, in a small heap as well.
const (
	freeGarbage  = 64 << 20 // bytes up to which as much as lives may be garbage
	garbageShare = 8        // of what lives beyond that, one part in so many
	plainPercent = 100      // the collector's setting for a small heap

	busyTurns   = 4         // of the collector's, a second each, between two collections
	busyGarbage = 384 << 20 // bytes, at most
	busyPercent = 200       // of what lives, at most
	busyShare   = 2         // of the memory limit, which is what lives with its garbage: one part in so many
)

// defendMemory has admission, and what bounds what is kept for clients, go by how much memory
// is used and how much may be, in bytes. Once the server is open one goroutine calls it.
func (s *Server) defendMemory(resident, limit int64) {
	s.admission.SetMemory(resident, limit)
	s.park.SetLimits(park.Limits{MaxHeldBytes: s.admission.Bound(park.DefaultMaxHeldBytes)})
	s.engine.Hub().SetLimits(s.watchLimits())
}

func (s *Server) watchLimits() watch.Limits {
	return watch.Limits{HistoryBytes: s.cfg.HistoryBytes, QueryBytes: s.admission.Bound(watch.DefaultQueryBytes)}
}

// settleMemory makes the process keep to the memory it was given. Admission
// refuses growth above it, and resident memory is up to twice what lives until
// the collector is told of a limit. Whoever sets GOMEMLIMIT knows better.
//
// What recovery has read, whole segments, is given back at once: an idle member
// would otherwise keep it for as long as nothing happens. Nobody waits for that: it
// goes through all that lives.
func settleMemory(limit int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(float64(limit) * memoryShare))
	}
	go debug.FreeOSMemory()
}

// When an idle member gives memory back. Garbage of a storm of logins would otherwise stay
// until as much again has been made, which on an idle member is never.
const (
	idleTurns    = 10       // of the collector's, a second each
	idleBytes    = 16 << 20 // made in as many turns, at most: echoes of thousands of connections
	spareBytes   = 2 << 20  // beyond what lives and not in use, at least
	spareShare   = 8        // of what lives, at least one part in so many
	givingMost   = 1 << 30  // bytes that live: the collector goes through more only for what is made
	givingEvery  = 30       // turns: as much as echoes make meanwhile is a few megabytes
	heapLive     = "/gc/heap/live:bytes"
	heapAllocs   = "/gc/heap/allocs:bytes"
	heapObjects  = "/memory/classes/heap/objects:bytes"
	heapFree     = "/memory/classes/heap/free:bytes"
	samplesTaken = 4
)

// collector keeps Go's garbage collector at the percentage that the heap's size asks
// for, and gives back what an idle member does not need. It belongs to one goroutine.
type collector struct {
	percent int
	samples [samplesTaken]runtimemetrics.Sample
	idle    idleness
}

func newCollector() *collector {
	return &collector{percent: plainPercent, samples: [samplesTaken]runtimemetrics.Sample{{Name: heapLive}, {Name: heapAllocs}, {Name: heapObjects}, {Name: heapFree}}}
}

// settle looks at what lives since the last collection, of a member with a memory limit in
// bytes, and at what is made. Setting the percentage stops
// the program for a moment, so small differences change nothing. Whoever sets
// GOGC knows better.
func (c *collector) settle(limit int64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	runtimemetrics.Read(c.samples[:])
	live, made := c.samples[0].Value.Uint64(), c.samples[1].Value.Uint64()
	want := gcPercent(live, c.idle.lately(made)*busyTurns/idleTurns, uint64(limit))
	if math.Abs(float64(want-c.percent)) > float64(c.percent)/garbageShare {
		c.percent = want
		debug.SetGCPercent(want)
	}
	if c.idle.givesBack(live, made, c.samples[2].Value.Uint64()+c.samples[3].Value.Uint64()) {
		go debug.FreeOSMemory() // nobody waits for it
	}
}

// idleness says when memory is given back. It costs a collection, and pages that are
// asked for anew: not while there is work, and not where so much lives that what was made
// while there was work ([gcPercent]) is little.
type idleness struct {
	turn  uint64
	made  [idleTurns]uint64 // bytes ever, in the last turns
	given uint64            // the turn in which memory was given back; 0: never
}

// lately is how many bytes were made in the last turns, of those that were made ever.
func (i *idleness) lately(made uint64) uint64 { return made - i.made[i.turn%idleTurns] }

// givesBack is asked once a turn, with the bytes that lived at the last collection, that
// were made ever, and that objects, garbage among them, and free pages have.
func (i *idleness) givesBack(live, made, held uint64) bool {
	lately := i.lately(made)
	i.made[i.turn%idleTurns] = made
	i.turn++
	switch {
	case i.turn <= idleTurns, lately > idleBytes:
		return false
	case i.given != 0 && i.turn-i.given < givingEvery:
		return false
	case live > givingMost, held < live+max(spareBytes, live/spareShare):
		return false
	}
	i.given = i.turn
	return true
}

// end leaves the collector as it was found.
func (c *collector) end() {
	if c.percent != plainPercent {
		debug.SetGCPercent(plainPercent)
	}
}

// gcPercent is how much garbage there may be beside so many bytes that live, where so many
// are made between two collections that do not come too often, under a limit of memory.
func gcPercent(live, made, limit uint64) int {
	if live == 0 { // nothing was collected yet
		return plainPercent
	}
	garbage := live
	if live > freeGarbage {
		garbage = freeGarbage + (live-freeGarbage)/garbageShare
	}
	if most := limit / busyShare; live < most {
		garbage = max(garbage, min(made, busyGarbage, live*busyPercent/100, most-live))
	}
	return int(garbage * 100 / live)
}
