package ovsdb

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

const vswitch = "/usr/share/openvswitch/vswitch.ovsschema"

// chassis is a hypervisor: Open vSwitch without a kernel's datapath, whose database is a
// server of ours, and OVN's controller.
type chassis struct {
	*server
	name, address string // of its end of tunnels
}

// startChassis starts one that takes its part in the network of a southbound database.
func startChassis(t *testing.T, name, address, southbound string) *chassis {
	t.Helper()
	c := &chassis{startServer(t, []string{vswitch}), name, address}
	c.vsctl("--no-wait", "init")
	// Devices and datapaths of the kernel are dummies in the process.
	c.run("ovs-vswitchd", c.unix, "--no-chdir", "--enable-dummy=system", "--disable-system", "-vconsole:info",
		"--unixctl="+filepath.Join(c.dir, "vswitchd"))
	c.vsctl("set", "Open_vSwitch", ".", "external_ids:system-id="+name, `external_ids:ovn-remote="`+southbound+`"`,
		"external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip="+address)
	c.vsctl("add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=dummy", "fail-mode=secure")
	c.run("ovn-controller", c.unix, "--no-chdir", "-vconsole:info")
	return c
}

// vsctl runs ovs-vsctl, which waits until the switch has done what it says.
func (c *chassis) vsctl(args ...string) string {
	c.t.Helper()
	return c.do("ovs-vsctl", append([]string{"--db=" + c.unix, "--timeout=30"}, args...)...)
}

// plug plugs a device into the switch that is a port of the logical network.
func (c *chassis) plug(port string) {
	c.t.Helper()
	c.vsctl("add-port", "br-int", port, "--", "set", "Interface", port, "type=dummy", "external_ids:iface-id="+port)
}

// flows is how many flows the switch has that mention some text.
func (c *chassis) flows(mention string) int {
	c.t.Helper()
	return strings.Count(c.do("ovs-ofctl", "dump-flows", "unix:"+filepath.Join(c.dir, "br-int.mgmt")), mention)
}

// A small network of OVN, all of whose databases are ours: two hypervisors with a port
// each on two logical switches, and a logical router between these.
func TestNetwork(t *testing.T) {
	need(t, "ovn-nbctl", "ovn-sbctl", "ovn-northd", "ovn-controller", "ovn-trace", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl")
	if os.Geteuid() != 0 {
		t.Skip("ovs-vswitchd has to be root")
	}
	c := startCluster(t, "--ovsdb-schema", northbound, "--ovsdb-schema", southbound)
	central := c.remotes()
	s := &server{t: t, unix: central, dir: t.TempDir()}
	s.nbctl("init")
	s.do("ovn-sbctl", "--db="+central, "init")
	s.run("ovn-northd", "--ovnnb-db="+central, "--ovnsb-db="+central, "--unixctl="+filepath.Join(s.dir, "northd"), "-vconsole:info")
	hv1, hv2 := startChassis(t, "hv1", "192.0.2.1", central), startChassis(t, "hv2", "192.0.2.2", central)

	s.nbctl("lr-add", "lr", "--", "lrp-add", "lr", "lr-a", "00:00:00:00:ff:01", "10.0.1.254/24", "--", "lrp-add", "lr", "lr-b", "00:00:00:00:ff:02", "10.0.2.254/24")
	for _, n := range []string{"a", "b"} {
		s.nbctl("ls-add", n, "--", "lsp-add", n, n+"-lr", "--", "set", "Logical_Switch_Port", n+"-lr",
			"type=router", "options:router-port=lr-"+n, "addresses=router")
	}
	s.nbctl("lsp-add", "a", "p1", "--", "lsp-set-addresses", "p1", "00:00:00:00:00:01 10.0.1.1")
	s.nbctl("lsp-add", "b", "p2", "--", "lsp-set-addresses", "p2", "00:00:00:00:00:02 10.0.2.1")
	hv1.plug("p1")
	hv2.plug("p2")
	s.isBound("p1", "hv1")
	s.isBound("p2", "hv2")
	s.nbctl("--wait=hv", "--timeout=60", "sync")
	for _, hv := range []*chassis{hv1, hv2} {
		if n := hv.flows("table=0"); n == 0 {
			t.Errorf("%s has no flows", hv.name)
		}
		if out := hv.vsctl("--bare", "--columns=type", "find", "Interface", "type=geneve"); out != "geneve\n" {
			t.Errorf("the tunnels of %s: %q", hv.name, out)
		}
	}
	packet := `inport=="p1" && eth.src==00:00:00:00:00:01 && eth.dst==00:00:00:00:ff:01 && ip4.src==10.0.1.1 && ip4.dst==10.0.2.1 && ip.ttl==64`
	if out := s.do("ovn-trace", "--db="+central, "--minimal", "a", packet); !strings.Contains(out, `output("p2")`) {
		t.Errorf("a packet to the other switch: %s", out)
	}

	// What comes later is done by the members that are left. The command tries each
	// member once, and gives up if none has a leader yet.
	c.killLeader()
	outside.Eventually(t, patience, "the others are written to", func() bool {
		_, err := s.try("ovn-nbctl", "--db="+central, "--may-exist", "lsp-add", "b", "p3", "--", "lsp-set-addresses", "p3", "00:00:00:00:00:03 10.0.2.2")
		return err == nil
	})
	hv1.plug("p3")
	s.isBound("p3", "hv1")
	s.nbctl("--wait=hv", "--timeout=60", "sync")
	s.nbctl("--wait=hv", "--timeout=60", "lsp-del", "p1")
	if out := s.do("ovn-sbctl", "--db="+central, "--bare", "--columns=logical_port", "find", "Port_Binding", "logical_port=p1"); out != "" {
		t.Errorf("a port that is gone has a binding: %s", out)
	}
}

// isBound waits until a port is up on a chassis.
func (s *server) isBound(port, chassis string) {
	s.t.Helper()
	outside.Eventually(s.t, patience, port+" is up on "+chassis, func() bool {
		if out, err := s.try("ovn-nbctl", "--db="+s.unix, "lsp-get-up", port); err != nil || out != "up\n" {
			return false
		}
		at, err := s.try("ovn-sbctl", "--db="+s.unix, "--bare", "--columns=chassis", "find", "Port_Binding", "logical_port="+port)
		is, err2 := s.try("ovn-sbctl", "--db="+s.unix, "--bare", "--columns=_uuid", "find", "Chassis", "name="+chassis)
		return err == nil && err2 == nil && is != "" && at == is
	})
}
