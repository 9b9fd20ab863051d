package bench

import (
	"context"
	"net"
	"net/url"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// doorJuju is the door for Juju's agents, as scenarios and servers name it.
const doorJuju = "juju"

// jujuHosts asks each server where its door for Juju's agents is.
func (r *run) jujuHosts(ctx context.Context) ([]string, error) {
	var hosts []string
	for i, c := range r.clients {
		address, err := doorAddress(ctx, c, r.urls[i], doorJuju)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, address)
	}
	return hosts, nil
}

// doorAddress asks a server where one of its doors is.
func doorAddress(ctx context.Context, c *client.Client, server, door string) (string, error) {
	st, err := statusOf(ctx, c)
	if err != nil {
		return "", err
	}
	for _, d := range st.Doors {
		if d.Name == door {
			return reachable(d.Address, server)
		}
	}
	return "", incumbent.Errorf(incumbent.Invalid, "%s has no door for %s", server, door).WithHint("start it with --" + door + "-listen")
}

// reachable is where to dial an address that a server listens on: where that names
// no host, the host of the server's URL.
func reachable(address, server string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	u, uerr := url.Parse(server)
	if err != nil || uerr != nil {
		return "", incumbent.Errorf(incumbent.Invalid, "%s names a door as %q", server, address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = u.Hostname()
	}
	return net.JoinHostPort(host, port), nil
}
