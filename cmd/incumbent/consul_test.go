package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestConsulsCommandLine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "c.json")
	text := `{"node_name":"node-1","node_id":"6b2f3a52-6d2a-4f0e-9a59-3a4d0c1b2e01","data_dir":"D","bind_addr":"127.0.0.2","addresses":{"http":"127.0.0.3"},
		"ports":{"http":1234,"dns":5},"bootstrap":true,"server":true,"log_level":"warn","connect":{"enabled":true},"performance":{"raft_multiplier":1}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-config-file", file, "-dev"}, {"--config-file=" + file}, {"-config-dir", dir, "-ui"}} {
		own, clean, err := consulAgent(args)
		clean()
		want := "server --dev --data-dir D --listen 127.0.0.1:0 --consul-listen 127.0.0.3:1234 --log-level warn --name node-1 --consul-node node-1 " +
			"--consul-node-id 6b2f3a52-6d2a-4f0e-9a59-3a4d0c1b2e01 --consul-node-address 127.0.0.2"
		if err != nil || strings.Join(own, " ") != want {
			t.Errorf("%q: %q, %v", args, own, err)
		}
	}
	own, clean, err := consulAgent([]string{"-dev", "-http-port", "99", "-client", "::1", "-node=a"})
	if err != nil || !slices.Contains(own, "[::1]:99") || !slices.Contains(own, "a") {
		t.Errorf("%q, %v", own, err)
	}
	data := own[slices.Index(own, "--data-dir")+1]
	if _, err := os.Stat(data); err != nil {
		t.Error(err)
	}
	clean()
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("%s is left behind: %v", data, err)
	}
	for _, args := range [][]string{{}, {"-config-file", filepath.Join(dir, "none.json")}, {"-dev", "-http-port", "x"}} {
		if _, _, err := consulAgent(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if !isConsul("/usr/bin/consul") || isConsul("incumbent") {
		t.Error("the name is not told apart")
	}
}
