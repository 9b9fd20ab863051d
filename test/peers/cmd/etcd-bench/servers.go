//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
	"github.com/incumbent-dev/incumbent/test/peers/etcdpeer"
)

// servers are the members under load.
type servers struct {
	members etcdload.Members
	pids    []int
}

func (s servers) usage() (etcdpeer.Usage, error) { return etcdpeer.UsageOf(s.pids...) }

func (s servers) cpu() (time.Duration, error) {
	u, err := s.usage()
	return u.CPU, err
}

// withServers calls f with fresh servers, or with those the options name.
func withServers(ctx context.Context, o options, f func(servers) error) (err error) {
	if o.endpoints != "" {
		pids, err := parsePIDs(o.pids)
		if err != nil {
			return err
		}
		return f(servers{etcdload.Members{Endpoints: strings.Split(o.endpoints, ",")}, pids})
	}
	if o.dir != "" {
		if err := os.MkdirAll(o.dir, 0o700); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(o.dir, "etcd-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cl, err := etcdpeer.Start(ctx, etcdpeer.Config{Binary: o.etcd, Members: o.members, Dir: dir, TLS: o.tls})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cl.Stop()) }()
	return f(servers{etcdload.Members{Endpoints: cl.Endpoints(), TLS: cl.TLS()}, cl.PIDs()})
}

func parsePIDs(list string) ([]int, error) {
	var pids []int
	for text := range strings.SplitSeq(list, ",") {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("--pids: %q is not a process id", text)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
