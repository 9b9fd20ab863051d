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
// gives to some connection meanwhile, nor one that was chosen for another member.
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
	members := make([]localMember, 20)
	chosen := map[int]bool{}
	for i := range members {
		for range 2 {
			port, err := members[i].holdPort("127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			if chosen[port] || port >= first {
				t.Errorf("chose %d, the system's begin at %d; chosen before: %v", port, first, chosen[port])
			}
			chosen[port] = true
			if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				ln.Close()
				t.Errorf("another server could take port %d, which is held", port)
			}
		}
	}
	for i := range members {
		members[i].letGo()
	}
	for port := range chosen {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
	}
}
