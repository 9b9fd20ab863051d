package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// A port that is chosen before its server starts must not be one that the system
// gives to some connection meanwhile.
func TestChosenPortsAreNotGivenAway(t *testing.T) {
	first := 32_768 // where the system does not say
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if first, err = strconv.Atoi(strings.Fields(string(b))[0]); err != nil {
			t.Fatal(err)
		}
	}
	if first < firstChosenPort+chosenPorts {
		t.Skipf("this system gives away ports from %d on", first)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for range 20 {
		ports, err := freePorts("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if ports[0] == ports[1] || max(ports[0], ports[1]) >= first {
			t.Errorf("chose %v, the system's begin at %d", ports, first)
		}
		for _, p := range ports {
			ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if err != nil {
				t.Fatal(err)
			}
			ln.Close()
		}
	}
}
