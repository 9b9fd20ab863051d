package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// doorConsul is the door that speaks Consul's protocol, as scenarios and servers name
// it, and the peer that speaks it itself: what is played over it is the same for both.
const doorConsul = "consul"

// Ways of changing what a service's watchers see.
const (
	changeRegister = "register" // a check's state and output, by the catalog
	changeTTL      = "ttl"      // the same by the agent: a TTL check
	changeReplace  = "replace"  // an instance goes and another one comes
)

// Limits of what is registered.
const (
	maxInstances = 20_000
	maxFilters   = 5_000
)

// Catalog is what a scenario over Consul's protocol registers, changes and watches. The
// watchers, and how many changes a second there are, are those of closed.
type Catalog struct {
	Instances []int  `yaml:"instances"`         // of the one service: a step each, not fewer than before
	Change    string `yaml:"change"`            // register, ttl or replace
	Gzip      bool   `yaml:"gzip,omitempty"`    // watchers take compressed answers
	Filters   int    `yaml:"filters,omitempty"` // distinct filters, of which each watcher has one; 0: all see everything
	// Late is the share of the returns, 0 to 1, at which a watcher pauses first, so that
	// the index it comes back with is old by then.
	Late  float64  `yaml:"late,omitempty"`
	Pause Duration `yaml:"pause,omitempty"`
	// Away: watchers are at members only that do not lead, and changes are made at the leader.
	Away bool `yaml:"away,omitempty"`
	// Kill is when, after the measurement began, the leader is killed; 0: never.
	Kill Duration `yaml:"kill,omitempty"`
	Wait Duration `yaml:"wait,omitempty"` // of each query; 0: 5 min
}

// speaks reports whether the scenario is played over a door's protocol.
func (sc *Scenario) speaks(door string) bool {
	return sc.Door == door || sc.Closed != nil && closedOps[sc.Closed.Op] != nil && closedOps[sc.Closed.Op].door == door
}

func (sc *Scenario) consul() bool {
	return sc.speaks(doorConsul)
}

func (sc *Scenario) validateConsul() error {
	c := sc.Catalog
	switch {
	case !sc.consul() && c != nil:
		return fmt.Errorf("catalog is for the door consul")
	case sc.consul() && sc.Bare != nil && (sc.Bare.Duration <= 0 || sc.Bare.Workers != 0):
		return fmt.Errorf("bare needs a duration, and has as many connections as what it is compared with")
	case sc.Door != doorConsul || sc.Play != "watch":
		return nil
	case c == nil || len(c.Instances) == 0 || len(c.Instances) > maxStages || !slices.IsSorted(c.Instances):
		return fmt.Errorf("catalog.instances must be 1 to %d steps, none smaller than the one before", maxStages)
	case c.Instances[0] < 1 || slices.Max(c.Instances) > maxInstances:
		return fmt.Errorf("catalog.instances must be 1 to %d", maxInstances)
	case !slices.Contains([]string{changeRegister, changeTTL, changeReplace}, c.Change):
		return fmt.Errorf("catalog.change %q is none of %s, %s, %s", c.Change, changeRegister, changeTTL, changeReplace)
	case c.Filters < 0 || c.Filters > maxFilters || c.Filters > c.Instances[0]:
		return fmt.Errorf("catalog.filters must be 0 to %d, and no more than there are instances", maxFilters)
	case c.Filters > 0 && sc.Closed != nil && sc.Closed.Workers%c.Filters != 0:
		return fmt.Errorf("closed.workers must be a multiple of catalog.filters")
	case !(c.Late >= 0 && c.Late <= 1) || c.Late > 0 && c.Pause <= 0:
		return fmt.Errorf("catalog.late must be 0 to 1, with a pause")
	case c.Kill > 0 && sc.Closed != nil && c.Kill >= sc.Closed.Duration:
		return fmt.Errorf("catalog.kill must come before closed.duration is over")
	}
	return nil
}

// consulDoors are where the members speak Consul's protocol.
func (r *run) consulDoors(ctx context.Context) ([]httpServer, error) {
	cfg := r.opts.Client
	if r.cluster != nil {
		cfg = r.cluster.Client()
	}
	if r.opts.Peer != "" {
		return httpServers(r.urls, cfg)
	}
	var urls []string
	for i, c := range r.clients {
		address, err := doorAddress(ctx, c, r.urls[i], doorConsul)
		if err != nil {
			return nil, err
		}
		scheme, _, _ := strings.Cut(r.urls[i], ":")
		urls = append(urls, scheme+"://"+address)
	}
	return httpServers(urls, cfg)
}

// leads is the place of the leader among the members.
func (r *run) leads(ctx context.Context) (int, error) {
	if len(r.urls) == 1 {
		return 0, nil
	}
	for {
		var lead int
		if peer, ok := r.cluster.(interface{ leader(context.Context) int }); ok {
			lead = peer.leader(ctx)
		} else if len(r.clients) > 0 {
			st, err := statusOf(ctx, r.clients[0])
			if err != nil {
				return 0, err
			}
			lead = r.leaderIn(st)
		} else {
			return 0, incumbent.Errorf(incumbent.Invalid, "who leads is known of servers only that this run starts, and of Incumbent's")
		}
		if lead >= 0 {
			return lead, nil
		}
		if err := sleep(ctx, localEvery); err != nil {
			return 0, err
		}
	}
}

// killAfter kills the leader after a time; noted is called just before. What it returns
// waits for that.
func (r *run) killAfter(ctx context.Context, d time.Duration, noted func()) (wait func()) {
	var killing sync.WaitGroup
	killing.Go(func() {
		if sleep(ctx, d) == nil {
			r.killLeader(ctx, noted)
		}
	})
	return killing.Wait
}

// killLeader kills the member that leads; noted is called just before.
func (r *run) killLeader(ctx context.Context, noted func()) {
	servers, ok := r.cluster.(interface {
		Kill(i int, sig syscall.Signal) error
	})
	lead, err := r.leads(ctx)
	if !ok || err != nil {
		r.check.Violate("the leader could not be killed: it needs servers that this run starts (%v)", err)
		return
	}
	r.setPhase("leader killed")
	noted()
	if err := servers.Kill(lead, syscall.SIGKILL); err != nil {
		r.check.Violate("the leader could not be killed: %v", err)
	}
}

// Limits of a look at a server's own figures.
const (
	maxMetrics     = 8 << 20
	metricsPatient = 5 * time.Second
)

// goroutines is how many the servers have together, 0 where they do not say.
func (r *run) goroutines(ctx context.Context) (sum float64) {
	for _, u := range r.urls {
		if r.opts.Peer != "" {
			sum += consulGoroutines(ctx, u)
		} else {
			sum += ownGoroutines(ctx, u)
		}
	}
	return sum
}

func lookAt(ctx context.Context, url string, read func(io.Reader)) {
	ctx, cancel := context.WithTimeout(ctx, metricsPatient)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return // a figure that is not there is left out
	}
	defer res.Body.Close()
	read(io.LimitReader(res.Body, maxMetrics))
}

func ownGoroutines(ctx context.Context, server string) float64 {
	n, _ := seriesOf(ctx, server, "go_goroutines") // 0 if it does not say
	return n
}

// seriesOf is the value of a series without labels among a member's metrics; false: it could
// not be read.
func seriesOf(ctx context.Context, server, name string) (n float64, ok bool) {
	lookAt(ctx, strings.TrimSuffix(server, "/")+"/metrics", func(body io.Reader) {
		for lines := bufio.NewScanner(body); lines.Scan(); {
			if v, is := strings.CutPrefix(lines.Text(), name+" "); is {
				var err error
				n, err = strconv.ParseFloat(v, 64)
				ok = err == nil
			}
		}
	})
	return n, ok
}

func consulGoroutines(ctx context.Context, server string) (n float64) {
	var said struct {
		Gauges []struct {
			Name  string
			Value float64
		}
	}
	lookAt(ctx, server+"/v1/agent/metrics", func(body io.Reader) { _ = json.NewDecoder(body).Decode(&said) }) // nothing of it: none
	for _, g := range said.Gauges {
		if strings.HasSuffix(g.Name, ".runtime.num_goroutines") {
			n = g.Value
		}
	}
	return n
}
