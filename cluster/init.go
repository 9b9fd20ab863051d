package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// InitConfig says what [Init] prepares.
type InitConfig struct {
	DataDir string       // required
	Name    string       // of the first member; the host's
	TLS     bool         // make an authority and certificates
	Hosts   []string     // more DNS names and IP addresses for the member's certificate
	Logger  *slog.Logger // discarded if nil
}

// Initialized says what [Init] made or found.
type Initialized struct {
	ClusterID, MemberID, Name string
	Existed                   bool // the directory held a cluster, which is kept

	// Without TLS empty. The operator's certificate is for people and tools;
	// they may do everything.
	CAFile, CAHash, OperatorCert, OperatorKey string
}

// Init makes a data directory the first member of a cluster. What a member that
// ran alone has there is kept; done twice it changes nothing. The error is
// Unavailable while a server runs on the directory.
func Init(cfg InitConfig) (out Initialized, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.DataDir == "" {
		return out, invalid("data-dir", "is not set").WithHint("give --data-dir DIR")
	}
	r, err := ReadRecord(cfg.DataDir)
	if err != nil {
		return out, err
	}
	if r != nil && r.Stage != member {
		return out, incumbent.Errorf(incumbent.Conflict, "%s is about to join cluster %s", cfg.DataDir, r.Cluster).
			WithHint("start the server on it, or give an empty data directory")
	}
	if r != nil {
		if err := r.checkLog(cfg.DataDir); err != nil {
			return out, err
		}
		if cfg.Name != "" && cfg.Name != r.Name {
			return out, incumbent.Errorf(incumbent.Conflict, "%s is of member %q", cfg.DataDir, r.Name).WithHint("without --name it keeps that")
		}
		cfg.Name = r.Name
	}
	if cfg.Name == "" {
		cfg.Name = HostName()
	}
	if err := ValidName(cfg.Name); err != nil {
		return out, err
	}
	out.Existed = hasLog(cfg.DataDir)
	err = offline(cfg.DataDir, cfg.Logger, func(n *node.Node, _ *core.View) error {
		st := n.Status()
		if r == nil {
			r = newRecord(st, cfg.Name)
		}
		r.Clustered = true
		r.Hosts = HostsOf(r.Hosts, cfg.Hosts...)
		out.ClusterID, out.MemberID, out.Name = r.Cluster, r.ID, r.Name
		if cfg.TLS || HasAuthority(cfg.DataDir) {
			if err := makeAuthority(cfg.DataDir, st.Cluster, &out); err != nil {
				return err
			}
		}
		return r.Write(cfg.DataDir)
	})
	return out, err
}

// newRecord is that of a member that has always been alone.
func newRecord(st node.Status, name string) *Record {
	return &Record{Stage: member, Cluster: hex.EncodeToString(st.Cluster[:]), ID: FormatID(st.Member), Name: name, Secret: ca.NewSecret()}
}

// makeAuthority makes the authority and an operator's certificate, unless they
// are there. The authority's certificate is written last: it makes all count.
func makeAuthority(dir string, cluster [16]byte, out *Initialized) error {
	folder := filepath.Join(dir, tlsFolder)
	out.CAFile, out.OperatorCert, out.OperatorKey = filepath.Join(folder, caCertFile), filepath.Join(folder, operatorCert), filepath.Join(folder, operatorKey)
	if HasAuthority(dir) {
		trusted, err := readTrust(folder)
		if err == nil {
			out.CAHash = ca.Hash(trusted[0])
		}
		return err
	}
	now := time.Now()
	a, err := ca.New(cluster, now)
	if err != nil {
		return err
	}
	out.CAHash = a.Hash()
	key, err := a.KeyPEM()
	if err != nil {
		return err
	}
	cert, own, err := a.Operator(operatorName, now)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{caKeyFile, key}, {operatorCert, cert}, {operatorKey, own}, {caCertFile, a.CertPEM()}} {
		if err := WriteFile(filepath.Join(folder, f.name), f.text); err != nil {
			return err
		}
	}
	return nil
}

// offline opens the node of a data directory, restores its state and calls f,
// without running anything.
func offline(dir string, log *slog.Logger, f func(*node.Node, *core.View) error) error {
	group, err := engine.New(engine.Config{Lease: lease.Options{Logger: log}})
	if err != nil {
		return err
	}
	err = group.Open(node.Config{
		FS: vfs.OS{}, Dir: dir, Schema: core.SchemaVersion, Logger: log, SegmentBytes: node.MinSegmentBytes, KeepSegmentBytes: true,
	})
	if err != nil {
		return err
	}
	return errors.Join(f(group.Node(), group.View()), group.Close(context.Background()))
}
