package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/server"
)

func TestJudgeDescriptors(t *testing.T) {
	for _, c := range []struct {
		fleet, hard uint64
		result, fix string
	}{
		{1000, 1256, "ok", ""},
		{1000, 1255, "problem", "LimitNOFILE=1256 in the unit, or spread the fleet over 2 members"},
		{1000, server.SpareDescriptors, "problem", "LimitNOFILE=1256 in the unit"},
		{1000, 10, "problem", "LimitNOFILE=1256 in the unit"},
		{50_000, 20_000, "problem", "LimitNOFILE=50256 in the unit, or spread the fleet over 3 members"},
	} {
		got := judgeDescriptors(c.fleet, 1, c.hard)
		if got.Result != c.result || got.Fix != c.fix {
			t.Errorf("%d agents, %d descriptors: %q %q, want %q %q", c.fleet, c.hard, got.Result, got.Fix, c.result, c.fix)
		}
	}
}

func TestJudgeConnections(t *testing.T) {
	if got := judgeConnections(server.DefaultMaxConnections); got.Result != "ok" {
		t.Errorf("just enough: %v", got)
	}
	if got := judgeConnections(50_000); got.Result != "warning" || got.Fix != "--max-connections 50000, or spread the fleet over 4 members" {
		t.Errorf("too many: %v", got)
	}
}

func TestJudgeMemory(t *testing.T) {
	if got := judgeMemory(1000, 100, 100); got.Result != "ok" {
		t.Errorf("just enough: %v", got)
	}
	if got := judgeMemory(1000, 101, 100); got.Result != "problem" || !strings.Contains(got.Fix, "--memory-limit") {
		t.Errorf("too little: %v", got)
	}
}

func TestCheckDisk(t *testing.T) {
	dir := t.TempDir()
	if got := checkFlush(dir); got.Result == "problem" {
		t.Errorf("flush: %v", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("it left %v behind, %v", left, err)
	}
	missing := filepath.Join(dir, "missing")
	if got := existing(filepath.Join(missing, "deeper")); got != dir {
		t.Errorf("the nearest folder that is there is %s, want %s", got, dir)
	}
	for _, got := range []finding{checkDisk(missing), checkFlush(missing)} {
		if got.Result != "problem" || got.Fix == "" {
			t.Errorf("a folder that is not there: %v", got)
		}
	}
}

func TestJudgeDisk(t *testing.T) {
	if got := judgeDisk("/data", 100, 100); got.Result != "ok" {
		t.Errorf("just enough: %v", got)
	}
	if got := judgeDisk("/data", 99, 100); got.Result != "problem" || !strings.Contains(got.Fix, "--disk-reserve-bytes") {
		t.Errorf("too little: %v", got)
	}
}

// The machine the test runs on may lack what a server needs: then the table
// says so, and the exit code must too.
func TestDoctor(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := openServer(t)
	problem := regexp.MustCompile(`(?m)^\S.*  problem  `)
	for _, c := range []struct {
		server string
		args   []string
		want   []string
	}{
		{s.URL(), nil, []string{"descriptors", "memory", "ports", "disk space", "disk flush", "clock", "healthy"}},
		{"http://127.0.0.1:1", nil, []string{"none runs at http://127.0.0.1:1", "incumbent server --dev"}},
		{s.URL(), []string{"--fleet", "100000000"}, []string{"LimitNOFILE=100000256", "add memory or members"}},
		{s.URL(), []string{"--data-dir", filepath.Join(dir, "missing")}, []string{" free in " + dir}}, // the server makes it
		{s.URL(), []string{"--data-dir", filepath.Join(file, "below")}, []string{"create the folder"}},
	} {
		args := c.args
		if c.args == nil || c.args[0] != "--data-dir" {
			args = append([]string{"--data-dir", dir}, c.args...)
		}
		got := execute(t, map[string]string{"INCUMBENT_SERVER": c.server}, append([]string{"doctor"}, args...)...)
		code := 0
		if problem.MatchString(got.stdout) {
			code = 1
		}
		if got.code != code {
			t.Errorf("%v: exit code %d, want %d: %s%s", args, got.code, code, got.stdout, got.stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%v: no %q in\n%s", args, want, got.stdout)
			}
		}
	}
}
