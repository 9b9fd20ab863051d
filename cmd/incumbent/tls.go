package main

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/cluster"
)

func tlsCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "tls",
		Short: "issue and revoke client certificates",
		Example: `  incumbent tls issue agent:db-1 --out /etc/db/tls
  incumbent tls revoke --file /etc/db/tls/client.crt`,
	}
	addServerFlags(c)
	c.AddCommand(tlsIssue(env), tlsRevoke(env))
	return c
}

// Files of a certificate that is issued.
const (
	issuedCert = "client.crt"
	issuedKey  = "client.key"
	issuedCA   = "ca.crt"
)

func tlsIssue(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "issue KIND:NAME",
		Short: "make a client certificate of the cluster's own authority",
		Long: `Issue makes a key and a certificate by which an operator, agent or observer proves
who it is, and writes them to the folder --out: client.crt, client.key, which only its
owner may read, and ca.crt, the authority by which the client knows the servers. What is
there already it does not replace.

The key never leaves this machine. A member signs, if an operator asks: one of
--server that has the authority's key. With --data-dir no server is asked: the
authority of that member's directory signs, for whoever can read its key.

Exit code 3: there is no authority's key.`,
		Example: `  incumbent tls issue agent:db-1 --out /etc/db/tls --ttl 2160h
  incumbent tls issue operator:alice --out alice --data-dir /var/lib/incumbent`,
		Args: exactArgs("KIND:NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			form := formOf(c)
			made, err := issue(c, args[0])
			if err != nil {
				return err
			}
			if form != formTable {
				return printJSON(env.stdout, form, made)
			}
			t := &table{}
			t.row("principal", made.Principal)
			t.row("serial", made.Serial)
			t.row("ends", made.Ends.Format(time.RFC3339))
			t.row("flags", "--ca "+made.CA+" --cert "+made.Cert+" --key "+made.Key)
			return t.print(env.stdout)
		},
	}
	f := c.Flags()
	f.String("out", "", "folder for the files")
	f.String("data-dir", "", "sign with the authority of this member's data directory, without a server")
	f.StringSlice("san", nil, "DNS names and IP addresses that it is for, too")
	f.Duration("ttl", ca.OperatorLifetime, "how long it is good")
	addOutput(c)
	return c
}

// issued is a client certificate with its files, for scripts.
type issued struct {
	Principal string    `json:"principal"`
	Serial    string    `json:"serial"`
	Ends      time.Time `json:"ends"`
	CA        string    `json:"ca"`
	Cert      string    `json:"cert"`
	Key       string    `json:"key"`
}

func issue(c *cobra.Command, principal string) (*issued, error) {
	who, err := auth.ParsePrincipal(principal)
	if err != nil {
		return nil, usageError{err.Error()}
	}
	dir := text(c, "out")
	ttl, _ := c.Flags().GetDuration("ttl")
	switch {
	case dir == "":
		return nil, usageError{"give --out, a folder for the files"}
	case ttl < ca.MinClientLifetime:
		return nil, usageError{fmt.Sprintf("--ttl %v is shorter than %v", ttl, ca.MinClientLifetime)}
	}
	made := &issued{
		Principal: who.String(), CA: filepath.Join(dir, issuedCA), Cert: filepath.Join(dir, issuedCert), Key: filepath.Join(dir, issuedKey),
	}
	for _, file := range []string{made.Cert, made.Key} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			return nil, usageError{file + " is there already, or cannot be looked at"}
		}
	}
	key, err := ca.NewKey()
	if err != nil {
		return nil, err
	}
	cert, authority, err := signed(c, key, who, ttl)
	if err != nil {
		return nil, err
	}
	leaf, err := ca.ParseCertificate(cert)
	if err != nil {
		return nil, err
	}
	made.Serial, made.Ends = serialOf(leaf), leaf.NotAfter.UTC()
	return made, made.write(dir, key, cert, authority)
}

// signed has the authority sign the key: that of a directory, or a server's.
func signed(c *cobra.Command, key *ecdsa.PrivateKey, who auth.Principal, ttl time.Duration) (cert, authority []byte, err error) {
	hosts, _ := c.Flags().GetStringSlice("san")
	request, err := ca.Request(key, who.Name, nil)
	if err != nil {
		return nil, nil, err
	}
	if dir := text(c, "data-dir"); dir != "" {
		return cluster.SignClientIn(dir, request, ca.Client{Kind: who.Kind.String(), Name: who.Name, Hosts: hosts, Lifetime: ttl})
	}
	err = withClient(c, func(cl *client.Client) error {
		res, err := cl.Credentials().Sign(c.Context(), connect.NewRequest(&apiv1.SignCertificateRequest{
			Request: request, Principal: who.String(), Hosts: hosts, LifetimeMs: ttl.Milliseconds(),
		}))
		if err != nil {
			return err
		}
		cert, authority = res.Msg.Certificate, res.Msg.Authority
		return nil
	})
	return cert, authority, err
}

// write writes the files: the key first, without which the certificate is of no use.
func (i *issued) write(dir string, key *ecdsa.PrivateKey, cert, authority []byte) error {
	text, err := ca.KeyPEM(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "%s: %w", dir, err)
	}
	if err := writeSecret(i.Key, strings.TrimSuffix(string(text), "\n")); err != nil {
		return err
	}
	for file, text := range map[string][]byte{i.Cert: cert, i.CA: authority} {
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // certificates are for everybody
			return incumbent.Errorf(incumbent.Unavailable, "%s: %w", file, err)
		}
	}
	return nil
}

// serialOf is a certificate's serial number as it is printed and revoked by.
func serialOf(c *x509.Certificate) string { return fmt.Sprintf("%x", c.SerialNumber.Bytes()) }

func tlsRevoke(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "revoke [SERIAL]",
		Short: "take a client certificate back",
		Long: `Revoke takes the client certificate with this serial number back, in hexadecimal, or
that of --file: then its end is known, behind which its record is forgotten, and whose
it is. It lets nobody in any more, and whoever came in by it is cut off, on every
member that hears of the leader within a second. It cannot be undone: issue another.

With --end-sessions the sessions of its principal are closed at once, and what they
hold is free: it needs --file, or --principal.`,
		Example: `  incumbent tls revoke --file /etc/db/tls/client.crt --end-sessions
  incumbent tls revoke 3a5f00e1c2d9`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			file := text(c, "file")
			if (len(args) == 1) == (file != "") {
				return usageError{"give either SERIAL or --file"}
			}
			gone := &apiv1.RevokedCertificate{Principal: text(c, "principal")}
			if file == "" {
				gone.Serial = args[0]
			} else if err := revokedFile(gone, file); err != nil {
				return err
			}
			if _, err := auth.ParseSerial(gone.Serial); err != nil {
				return usageError{err.Error()}
			}
			return revoke(c, env, &apiv1.RevokeCredentialRequest{Which: &apiv1.RevokeCredentialRequest_Certificate{Certificate: gone}})
		},
	}
	c.Flags().String("file", "", "the certificate")
	c.Flags().String("principal", "", "whose it is, KIND:NAME, if only the serial number is known")
	c.Flags().Bool("end-sessions", false, "close the sessions of its principal at once")
	addOutput(c)
	return c
}

// revokedFile describes the certificate of a file.
func revokedFile(to *apiv1.RevokedCertificate, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return usageError{err.Error()}
	}
	leaf, err := ca.ParseCertificate(text)
	if err != nil {
		return err
	}
	to.Serial, to.EndsUnixMs = serialOf(leaf), leaf.NotAfter.UnixMilli()
	if who, err := auth.FromCertificate(leaf); err == nil && who.Kind != auth.Anonymous {
		to.Principal = who.String()
	}
	return nil
}
