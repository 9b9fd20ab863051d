package server

import (
	"net"
	"path/filepath"
	"testing"
)

// What takes memory beside the state is shown with its bound; a message to the OVSDB door
// that has not come whole is, for as long as it has not.
func TestConsumersAreShownWithTheirBounds(t *testing.T) {
	s, path := commanded(t, nil)
	used := func(name string) int64 {
		for _, l := range s.consumerLimits() {
			if l.GetName() == name {
				return int64(l.GetUsed())
			}
		}
		t.Fatalf("status does not show %q", name)
		return 0
	}
	for _, l := range s.consumerLimits() {
		if l.GetValue() == 0 || l.GetUsed() > l.GetValue() || l.GetUnit() != "bytes" {
			t.Errorf("%+v", l)
		}
	}
	c, err := net.Dial("unix", filepath.Join(filepath.Dir(path), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const name, half = "incomplete messages to OVSDB", `{"method":"echo","params":["`
	if _, err := c.Write([]byte(half)); err != nil {
		t.Fatal(err)
	}
	until(t, "half a message is shown", func() bool { return used(name) == int64(len(half)) })
	if _, err := c.Write([]byte(`"],"id":1}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "nothing is", func() bool { return used(name) == 0 })
	for _, name := range []string{"refused calls held back", "frames waiting for one member"} {
		if n := used(name); n != 0 {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}
