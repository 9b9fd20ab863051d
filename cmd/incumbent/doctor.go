package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/server"
)

// What a fleet costs, from docs/benchmarks.md, rounded up.
const (
	bytesPerConnection = 8 << 10  // plaintext stream, kernel's share included
	bytesOfTLS         = 12 << 10 // more, for a connection with TLS
	bytesPerLease      = 1 << 10  // with its history and its session
	bytesOfServer      = 64 << 20 // idle
)

// finding is the answer to one check.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warning, problem
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func doctorCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "check host and server and print the fix",
		Long: `Doctor checks what a server needs from this host and, if one answers, how it is.
--fleet N sizes descriptors, memory, ports and disk for N agents. Exit code 1: at
least one problem.`,
		Example: "  incumbent doctor --fleet 50000 --data-dir /var/lib/incumbent",
		Args:    exactArgs(),
		RunE:    func(c *cobra.Command, _ []string) error { return runDoctor(c, env) },
	}
	c.Flags().Int("fleet", 1000, "agents, each with one connection and one lease")
	c.Flags().String("data-dir", "", "data directory to check (default: the current folder)")
	addServerFlags(c)
	addOutput(c)
	return c
}

func runDoctor(c *cobra.Command, env *environment) error {
	fleet, _ := c.Flags().GetInt("fleet")
	if fleet < 1 || fleet > 100_000_000 {
		return usageError{"--fleet is 1 to 100,000,000 agents"}
	}
	dir := text(c, "data-dir")
	dir = existing(cmp.Or(dir, "."))
	all := []finding{checkDescriptors(fleet), judgeConnections(fleet), checkMemory(fleet), checkPorts(fleet), checkDisk(dir), checkFlush(dir), checkClock(), checkServer(c)}
	if f, ok := checkCertificate(text(c, "cert"), time.Now()); ok {
		all = append(all, f)
	}
	problems := 0
	t := &table{header: []string{"check", "result", "detail"}}
	for _, f := range all {
		if f.Result == "problem" {
			problems++
		}
		t.row(f.Check, f.Result, f.Detail)
		if f.Fix != "" {
			t.row("", "fix:", f.Fix)
		}
	}
	var err error
	if form := formOf(c); form == formTable {
		err = t.print(env.stdout)
	} else {
		err = printList(env.stdout, form, all)
	}
	if err == nil && problems > 0 {
		return statusError{exitOther, fmt.Sprintf("%d of %d checks found a problem", problems, len(all))}
	}
	return err
}

// existing is a folder, or the nearest one above it that is there: the server makes those that
// are missing.
func existing(dir string) string {
	for {
		_, err := os.Stat(dir)
		up := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || up == dir {
			return dir
		}
		dir = up
	}
}

func checkDescriptors(fleet int) finding {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return finding{"descriptors", "warning", err.Error(), ""}
	}
	return judgeDescriptors(uint64(fleet), lim.Cur, lim.Max)
}

// judgeDescriptors goes by the hard limit: Go raises the soft one to it.
func judgeDescriptors(fleet, soft, hard uint64) finding {
	need := fleet + server.SpareDescriptors
	detail := fmt.Sprintf("%d allowed (hard limit %d), %d needed for %d connections", soft, hard, need, fleet)
	if hard >= need {
		return finding{"descriptors", "ok", detail, ""}
	}
	fix := fmt.Sprintf("LimitNOFILE=%d in the unit", need)
	if hard > server.SpareDescriptors {
		fix += fmt.Sprintf(", or spread the fleet over %.0f members", math.Ceil(float64(fleet)/float64(hard-server.SpareDescriptors)))
	}
	return finding{"descriptors", "problem", detail, fix}
}

// judgeConnections goes by what a server accepts where its settings say nothing.
func judgeConnections(fleet int) finding {
	detail := fmt.Sprintf("%d accepted by default, %d wanted", server.DefaultMaxConnections, fleet)
	if fleet <= server.DefaultMaxConnections {
		return finding{"connections", "ok", detail, ""}
	}
	members := math.Ceil(float64(fleet) / server.DefaultMaxConnections)
	return finding{"connections", "warning", detail, fmt.Sprintf("--max-connections %d, or spread the fleet over %.0f members", fleet, members)}
}

func checkMemory(fleet int) finding {
	need := uint64(fleet)*(bytesPerConnection+bytesPerLease) + bytesOfServer
	have, err := memAvailable()
	if err != nil {
		return finding{"memory", "warning", err.Error(), ""}
	}
	return judgeMemory(fleet, need, min(have, uint64(server.DefaultMemoryLimit())))
}

func judgeMemory(fleet int, need, have uint64) finding {
	detail := fmt.Sprintf("%s available, about %s needed without TLS, %s with", size(have), size(need), size(need+uint64(fleet)*bytesOfTLS))
	if have < need {
		return finding{"memory", "problem", detail, "add memory or members; --memory-limit bounds what a server takes"}
	}
	return finding{"memory", "ok", detail, ""}
}

// memAvailable reads what the kernel says can be had without swapping.
func memAvailable() (uint64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			n, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, incumbent.Errorf(incumbent.NotFound, "no MemAvailable in /proc/meminfo")
}

// checkPorts is about a host that runs many clients: each connection to one
// address takes one of its ephemeral ports.
func checkPorts(fleet int) finding {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return finding{"ports", "warning", err.Error(), ""}
	}
	var lo, hi int
	if _, err := fmt.Sscan(string(data), &lo, &hi); err != nil {
		return finding{"ports", "warning", "cannot read the range of ephemeral ports: " + err.Error(), ""}
	}
	detail := fmt.Sprintf("%d ephemeral ports for connections from this host to one address", hi-lo+1)
	if hi-lo+1 < fleet {
		return finding{"ports", "warning", detail, "matters only if all agents run here: use several source addresses or members"}
	}
	return finding{"ports", "ok", detail, ""}
}

func checkDisk(dir string) finding {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return finding{"disk space", "problem", dir + ": " + err.Error(), "create the folder, or name another with --data-dir"}
	}
	return judgeDisk(dir, st.Bavail*uint64(st.Bsize), uint64(server.DefaultDiskReserve+10*server.DefaultSegmentBytes))
}

func judgeDisk(dir string, free, need uint64) finding {
	detail := fmt.Sprintf("%s free in %s, %s wanted for log, snapshots and reserve", size(free), dir, size(need))
	if free < need {
		return finding{"disk space", "problem", detail, "free some, or lower --log-segment-bytes, --snapshot-bytes and --disk-reserve-bytes"}
	}
	return finding{"disk space", "ok", detail, ""}
}

// checkFlush times durable writes of one page: what every claim waits for.
func checkFlush(dir string) finding {
	const rounds = 50
	f, err := os.CreateTemp(dir, ".incumbent-doctor-")
	if err != nil {
		return finding{"disk flush", "problem", err.Error(), "the server needs a folder it can write to"}
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer f.Close()
	worst, began := time.Duration(0), time.Now()
	page := make([]byte, 4096)
	for range rounds {
		start := time.Now()
		if _, err := f.WriteAt(page, 0); err != nil {
			return finding{"disk flush", "problem", err.Error(), ""}
		}
		if err := f.Sync(); err != nil {
			return finding{"disk flush", "problem", err.Error(), "a disk that cannot flush cannot hold a log"}
		}
		worst = max(worst, time.Since(start))
	}
	mean := time.Since(began) / rounds
	detail := fmt.Sprintf("mean %v, worst of %d %v", mean.Round(10*time.Microsecond), rounds, worst.Round(10*time.Microsecond))
	if mean > 20*time.Millisecond || worst > 500*time.Millisecond {
		return finding{"disk flush", "warning", detail, "claims wait for one flush each batch: use a disk with a power-safe cache"}
	}
	return finding{"disk flush", "ok", detail, ""}
}

func checkClock() finding {
	data, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return finding{"clock", "warning", err.Error(), ""}
	}
	source := strings.TrimSpace(string(data))
	if source == "jiffies" {
		return finding{"clock", "warning", "clock source jiffies is coarse", "choose tsc, kvm-clock or hpet"}
	}
	return finding{"clock", "ok", "clock source " + source + "; wall clocks decide about the ends of credentials and certificates alone", ""}
}

// checkCertificate looks at the certificate that this client shows; false if it
// has none.
func checkCertificate(file string, now time.Time) (finding, bool) {
	if file == "" {
		return finding{}, false
	}
	const check = "certificate"
	const fix = "'incumbent credential renew --data-dir DIR' on a member renews that of the cluster's operator; copy it here"
	data, err := os.ReadFile(file)
	if err != nil {
		return finding{check, "problem", err.Error(), "name a file that is there with --cert"}, true
	}
	cert, err := ca.ParseCertificate(data)
	if err != nil {
		return finding{check, "problem", file + ": " + err.Error(), "name a file with a certificate in PEM with --cert"}, true
	}
	detail := fmt.Sprintf("%s of %s ends at %s", file, cert.Subject.CommonName, cert.NotAfter.UTC().Format(time.RFC3339))
	switch left := cert.NotAfter.Sub(now); {
	case left <= 0:
		return finding{check, "problem", detail, fix}, true
	case left < cluster.OperatorWarning:
		return finding{check, "warning", detail, fix}, true
	}
	return finding{check, "ok", detail, ""}, true
}

func checkServer(c *cobra.Command) finding {
	servers, _ := c.Flags().GetStringSlice("server")
	where := strings.Join(servers, ", ")
	var res *connect.Response[apiv1.StatusResponse]
	err := withClient(c, func(cl *client.Client) (err error) {
		res, err = cl.Cluster().Status(c.Context(), connect.NewRequest(&apiv1.StatusRequest{}))
		return err
	})
	if err == nil {
		if res.Msg.Leader == "" {
			return finding{"server", "problem", res.Msg.Verdict, strings.Join(res.Msg.Warnings, "; ")}
		}
		if len(res.Msg.Warnings) > 0 {
			return finding{"server", "warning", res.Msg.Verdict, strings.Join(res.Msg.Warnings, "; ")}
		}
		return finding{"server", "ok", res.Msg.Verdict, ""}
	}
	if incumbent.KindOf(err) == incumbent.Unavailable && portFree(servers) {
		return finding{"server", "warning", "none runs at " + where, "start one: incumbent server --dev"}
	}
	return finding{"server", "problem", err.Error(), "look at its log; 'incumbent status' says more"}
}

// portFree reports whether nobody listens at the first server's address.
func portFree(servers []string) bool {
	if len(servers) == 0 {
		return false
	}
	u, err := url.Parse(servers[0])
	if err != nil {
		return false
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return true
	}
	conn.Close()
	return false
}
