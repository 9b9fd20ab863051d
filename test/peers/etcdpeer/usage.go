//go:build linux

package etcdpeer

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// userHZ is the unit of times in /proc/PID/stat. It is part of Linux's interface
// to user space and 100 on every architecture that Go supports.
const userHZ = 100

// Usage is what processes have used of the machine.
type Usage struct {
	RSSBytes int64         // resident now
	CPU      time.Duration // user and system time since their start, to 10 ms
}

// UsageOf adds up what the processes use. One that has ended is an error.
func UsageOf(pids ...int) (Usage, error) {
	var sum Usage
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return Usage{}, err
		}
		u, err := parseStat(string(text))
		if err != nil {
			return Usage{}, fmt.Errorf("process %d: %w", pid, err)
		}
		sum.RSSBytes += u.RSSBytes
		sum.CPU += u.CPU
	}
	return sum, nil
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)): utime and stime are fields
// 14 and 15, rss in pages is field 24. The command, field 2, may hold spaces and
// parentheses, so that fields are counted from the last closing one.
func parseStat(text string) (Usage, error) {
	const afterCommand = 3 // number of the field behind the command
	_, rest, found := cutLast(text, ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 24-afterCommand+1 {
		return Usage{}, fmt.Errorf("stat has too few fields: %q", text)
	}
	var values [3]int64
	for i, number := range [3]int{14, 15, 24} {
		v, err := strconv.ParseInt(fields[number-afterCommand], 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("stat field %d: %w", number, err)
		}
		values[i] = v
	}
	return Usage{
		CPU:      time.Duration(values[0]+values[1]) * (time.Second / userHZ),
		RSSBytes: values[2] * int64(os.Getpagesize()),
	}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
