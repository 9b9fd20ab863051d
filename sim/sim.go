// Package sim runs the real engine of one, three or five members, with its log,
// against agents, in virtual time and from one seed: who is
// slow, what is lost, who cannot hear whom, when the power fails, when a disk
// hangs and when a process stands still are all the seed's choice. The same seed
// gives the same run, to the byte.
//
// Everything happens in one goroutine, in the order of one queue of events. The
// parts that run on goroutines of their own in a server are driven by hand
// ([engine.Manual]); the disk is [vfs.Mem], which loses at a crash
// what a disk would; work on files runs in a coroutine that a slow or hanging
// disk holds up while the rest of the process goes on. What stands between the
// members is network.go, what goes wrong is nemesis.go, and operator.go changes the
// membership meanwhile, as people and the leader's server do.
//
// A run has three parts: faults and agents; a healing, after which every member
// must serve within a bounded time and nobody may call an election; and an end
// without agents, at which nothing may be held and all states must be equal.
//
// The checkers (check*.go) know what every agent believes at any moment of the
// one true time, which no agent and no member does, and what every member has
// applied.
package sim

import (
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent/core/kv"
)

// Times of the parts of a run that follow the faults.
const (
	settles       = 15 * time.Second                        // members boot, elect, catch up, and agents find them
	probing       = 10 * time.Second                        // within which every member must have served
	quiet         = 2*maxTTL + 2*returnTime + 3*time.Second // what nobody keeps is free by then
	maxViolations = 20
)

// Config says what one run may do.
type Config struct {
	Seed     uint64
	Duration time.Duration // virtual, of the part with faults
	Voters   int           // 1, 3 or 5
	Learners int
	Agents   int
	Leases   int
	Writers  int           // of keys and values
	Lockers  int           // of keys
	Listers  int           // of lists, by transactions
	Hosts    int           // of services in the catalog
	Pollers  int           // of the catalog
	Tablers  int           // of a database, by transactions
	Monitors int           // of the database
	Quota    int64         // of keys and values, in bytes; 0: none
	Hostile  bool          // the network reorders, repeats and drops single messages, as TCP never does
	Restore  bool          // all members are lost once, and a backup is restored
	Flood    *Flood        // far more is asked than can be served, for a while; nil: not
	Faults   time.Duration // mean time between two; 0: none
	Only     string        // with a name of nemesis.go: no other kind of fault
	Trace    io.Writer     // every event, for reading; nil: none
}

// Result is what one run did and found.
type Result struct {
	Seed       uint64
	Trace      uint64        // hash over every event: equal seeds give equal hashes
	Virtual    time.Duration // time that passed in the run
	Faults     map[string]int
	Crashes    int // of processes and machines
	Snapshots  int
	Terms      int // in which somebody led
	Grants     int
	Extensions int
	Releases   int
	Expiries   int
	HandOvers  int
	Refusals   int
	// Attachments that were answered, and revocations by force.
	Attached    int
	Revocations int
	Reads       int // linearizable ones that were answered
	Vouched     int // frames that vouched for a leader
	Watched     int // changes that reached a watcher
	CutOff      int // watchers that history had passed
	RolledBack  int // members that were refused because their disk had been put back
	Unknown     int // calls whose outcome was reported as unknown
	Writes      int // about keys that were done
	Conflicts   int // and those whose condition did not hold
	Idle        int // and those that were answered without the log
	Full        int // and those that the quota refused
	Gets        int // linearizable reads of a key
	Locks       int
	Delays      int // of locks, that began
	Policies    int // changes of policies
	// Transactions that were answered.
	Transactions int
	// Transactions that travelled in parts and were done.
	Large int
	// Passes of checks that were answered, and those that the log has.
	Passes, PassesLogged int
	Lapses               int // of checks that nobody had passed
	Bound                int // sessions that depend on a check
	Polls                int // that were answered
	Woken                int // of them before their time was over
	// Transactions on the database that were answered, attempts that came behind others,
	// and those that found done what they were to do.
	TableTxns, TableRetries, TableFound int
	TableTold                           int // changes of the database that reached a monitor
	TableResumed                        int // monitors that went on from what they knew
	Restored                            int // backups, after all members were lost
	Floods                              FloodResult
	Violations                          []string
}

// world is one run.
type world struct {
	cfg     Config
	rng     *rand.Rand
	now     time.Duration // the one true time
	queue   events
	seq     uint64
	hash    interface{ Sum64() uint64 }
	digest  io.Writer
	net     *network
	members []*member // machines
	agents  []*agent
	writers []*writer
	lockers []*locker
	listers []*lister
	hosts   []*host
	pollers []*poller
	tablers []*tabler
	// Those that put the database together.
	monitors []*tableMonitor
	clients  []*agent // of all of them
	keys     []kv.Key // that writers and lockers use
	values   uint64   // that were drawn
	admin    *administrator
	check    *checker
	healed   bool          // no more faults
	ends     time.Duration // when the agents died; 0: they live
	cluster  [16]byte
	// What the operator is doing; nil: nothing.
	operation *operation
	down      bool    // all members were lost, and nothing was restored yet
	putBack   *member // its disk is an earlier copy, and nobody has noticed yet
	res       Result
	failed    error
	calls     uint64 // numbers what agents submit
}

// Run performs one run.
func Run(cfg Config) Result {
	w := newWorld(cfg)
	w.play()
	w.res.Trace = w.hash.Sum64()
	w.res.Virtual = w.now
	w.res.Terms = w.check.ledBefore + len(w.check.leaders)
	return w.res
}

// newWorld returns a run at its beginning.
func newWorld(cfg Config) *world {
	h := fnv.New64a()
	w := &world{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x1c0b)), hash: h, digest: h}
	w.res = Result{Seed: cfg.Seed, Faults: map[string]int{}}
	w.keys = keysOfRun()
	w.check = newChecker(w)
	w.net = newNetwork(w)
	w.found()
	for _, m := range w.members {
		m.boot()
		m.backUp()
	}
	w.populate()
	w.admin = newAdministrator(w)
	w.admin.begin()
	w.admin.configure()
	w.admin.register()
	w.nemesis()
	w.disasters()
	w.floods()
	return w
}

// populate lets the clients begin.
func (w *world) populate() {
	begins := func(a *agent, begin func()) {
		w.clients = append(w.clients, a)
		w.after(w.upTo(2*time.Second), begin)
	}
	for i := range w.cfg.Agents {
		a := newAgent(w, i)
		w.agents = append(w.agents, a)
		begins(a, a.begin)
	}
	for range w.cfg.Writers {
		k := newWriter(w, w.nextID())
		w.writers = append(w.writers, k)
		begins(k.a, k.next)
	}
	for range w.cfg.Lockers {
		l := newLocker(w, w.nextID())
		w.lockers = append(w.lockers, l)
		begins(l.a, l.begin)
	}
	for range w.cfg.Listers {
		l := newLister(w, w.nextID())
		w.listers = append(w.listers, l)
		begins(l.a, l.next)
	}
	for i := range w.cfg.Hosts {
		h := newHost(w, i, w.nextID())
		w.hosts = append(w.hosts, h)
		begins(h.a, h.begin)
	}
	for range w.cfg.Pollers {
		k := newPoller(w, w.nextID())
		w.pollers = append(w.pollers, k)
		begins(k.a, k.next)
	}
	for range w.cfg.Tablers {
		k := newTabler(w, w.nextID())
		w.tablers = append(w.tablers, k)
		begins(k.a, k.begin)
	}
	for range w.cfg.Monitors {
		m := newTableMonitor(w, w.nextID())
		w.monitors = append(w.monitors, m)
		begins(m.a, m.act)
	}
}

// polls reports whether a client is a poller: those go on to the end.
func (w *world) polls(a *agent) bool {
	return slices.ContainsFunc(w.pollers, func(k *poller) bool { return k.a == a })
}

// nextID is the id of a client that is not an agent: behind those of probes and of
// the administrator.
func (w *world) nextID() int { return 2*w.cfg.Agents + len(w.members) + 1 + len(w.clients) }

// play goes through the parts of the run. One in which a member failed is over.
func (w *world) play() {
	if !w.loop(w.cfg.Duration) {
		return
	}
	w.heal()
	if !w.loop(w.now + settles) {
		return
	}
	w.check.settled()
	w.admin.conclude()
	w.probe()
	if !w.loop(w.now + probing) {
		return
	}
	w.check.probed()
	w.ends = w.now
	w.check.catalog.ended()
	w.check.polls.ending()
	for _, a := range w.clients {
		if !w.polls(a) {
			a.retire()
		}
	}
	for _, l := range w.lockers {
		l.locked = false
	}
	if w.loop(w.now + quiet) {
		w.check.atEnd()
	}
}
