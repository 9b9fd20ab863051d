package bench

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// userHz is the unit of CPU time in /proc: fixed at 100 for user space on Linux.
const userHz = 100

// processStat is what /proc says about one process.
type processStat struct {
	RSS   uint64
	CPU   time.Duration
	Files int
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
	if entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
		s.Files = len(entries)
	}
	return s
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
