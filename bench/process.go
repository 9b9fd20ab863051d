package bench

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// userHz is the unit of CPU time in /proc: fixed at 100 for user space on Linux.
const userHz = 100

// processStat is what /proc says about one process.
type processStat struct {
	RSS uint64
	CPU time.Duration
}

// readProcess returns zeroes where the system has no /proc or the process went.
func readProcess(pid int) processStat {
	var s processStat
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s
	}
	fields := statFields(string(stat))
	if fields == nil {
		return s
	}
	user, _ := strconv.ParseUint(fields[11], 10, 64)
	system, _ := strconv.ParseUint(fields[12], 10, 64)
	pages, _ := strconv.ParseUint(fields[21], 10, 64)
	s.CPU = time.Duration(user+system) * time.Second / userHz
	s.RSS = pages * uint64(os.Getpagesize())
	return s
}

// peakRSS is the most memory, in bytes, that a process had resident since it was started or
// since forgetPeak; 0 where the system does not say it.
func peakRSS(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	kb, _ := strconv.ParseUint(strings.TrimSuffix(afterColon(string(data), "VmHWM"), " kB"), 10, 64)
	return kb << 10
}

// forgetPeak has peakRSS begin anew; false: the system cannot.
func forgetPeak(pid int) bool {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) == nil
}

// sockets returns the inodes of a process's open sockets.
func sockets(pid int) map[string]bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	found := make(map[string]bool)
	for _, e := range entries {
		to, err := os.Readlink(dir + "/" + e.Name())
		if inode, ok := strings.CutPrefix(to, "socket:["); ok && err == nil {
			found[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return found
}

// meter reads what the servers use, also across processes that were started
// again in another's place.
type meter struct {
	pids func() []int

	mu    sync.Mutex // held while /proc is read: the readers are the sampler and the summary
	known []metered
}

// metered is one server's account.
type metered struct {
	pid    int
	before time.Duration // CPU time that is not to be counted: from before the start
	gone   time.Duration // of processes that have ended
	last   time.Duration // of this process, when it was read last
}

// start counts CPU time from now on.
func (m *meter) start() {
	m.mu.Lock()
	m.known = nil
	m.mu.Unlock()
	m.read()
}

// read returns what each server uses; CPU time since the start.
func (m *meter) read() []processStat {
	m.mu.Lock()
	defer m.mu.Unlock()
	pids := m.pids()
	out := make([]processStat, len(pids))
	for i, pid := range pids {
		p := readProcess(pid)
		if i == len(m.known) {
			m.known = append(m.known, metered{pid: pid, before: p.CPU})
		}
		k := &m.known[i]
		if k.pid != pid {
			*k = metered{pid: pid, gone: k.gone + k.last - k.before}
		}
		k.last = max(k.last, p.CPU) // one that has ended shows none
		p.CPU = k.gone + k.last - k.before
		out[i] = p
	}
	return out
}

// cpu is the CPU time of all servers since the start.
func (m *meter) cpu() (sum time.Duration) {
	for _, p := range m.read() {
		sum += p.CPU
	}
	return sum
}

// statFields returns the fields behind the command's name, which is in
// parentheses and may hold anything, ") " too. nil if they are not all there.
func statFields(stat string) []string {
	_, rest, ok := cutLast(stat, ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 22 {
		return nil
	}
	return fields
}

// Machine describes where a run was made.
type Machine struct {
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	MemBytes uint64 `json:"memory_bytes"`
	Kernel   string `json:"kernel"`
	OS       string `json:"os"`
}

func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = afterColon(string(data), "model name")
	}
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		if f := strings.Fields(afterColon(string(data), "MemTotal")); len(f) > 0 {
			kb, _ := strconv.ParseUint(f[0], 10, 64)
			m.MemBytes = kb << 10
		}
	}
	if data, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(data))
	}
	return m
}

func afterColon(text, key string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
