package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/incumbent-dev/incumbent/audit"
)

// Problem is one thing that is wrong with a Config.
type Problem struct {
	Setting string // the flag's name
	Err     error  // Invalid
}

// problems gathers what is wrong.
type problems []Problem

func (p *problems) add(setting string, err error) {
	if err != nil {
		*p = append(*p, Problem{setting, err})
	}
}

// Problems returns all that is wrong, as far as it shows without listening: it reads
// the files that are named, and looks at the data directory without changing it.
func (c Config) Problems() []Problem {
	c, joining := c.named()
	c = c.withDefaults()
	found := c.problems()
	found.add("join-file", joining)
	if c.DataDir != "" {
		found.add("data-dir", usableDir(c.DataDir))
	}
	_, err := newGuard(c, func(audit.Record) {})
	found.add("credential-file", err)
	if c.TLSCert != "" && c.TLSKey != "" {
		_, err := (&certificates{cfg: c}).pair()
		found.add("tls-cert", err)
	}
	if c.ClientCA != "" {
		_, err := readClientCA(c.ClientCA)
		found.add("client-ca", err)
	}
	_, err = readPasswords(c.Juju.CredentialFile)
	found.add("juju-credential-file", err)
	c.OVSDB.problems(&found)
	found.add("audit-log", usableFile(c.AuditLog))
	return found
}

// problems is what is wrong with the door's files.
func (o OVSDB) problems(found *problems) {
	if o.Cert != "" && o.Key != "" {
		_, err := o.pair()
		found.add("ovsdb-cert", err)
	}
	if o.CA != "" {
		_, _, err := o.authorities()
		found.add("ovsdb-ca", err)
	}
	_, err := o.schemas()
	found.add("ovsdb-schema", err)
}

// usableFile returns an Invalid error if the audit log cannot be written, or made, by
// this user.
func usableFile(name string) error {
	if name == AuditNone || name == AuditStderr {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_RDWR, 0)
	if err == nil {
		err = f.Close()
	} else if errors.Is(err, fs.ErrNotExist) {
		err = mayWrite(filepath.Dir(name)) // where it is made
	}
	if err != nil {
		return invalid("audit-log", "%w", err)
	}
	return nil
}

// usableDir returns an Invalid error if a data directory cannot be used, or cannot be
// made, by this user.
func usableDir(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue // it is made, in the nearest folder that is there
		}
		if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "open", Path: at, Err: syscall.ENOTDIR}
		}
		if err == nil {
			err = mayWrite(at)
		}
		return unusable(dir, err)
	}
}

// unusable makes an error that shows a data directory to be none for this user a
// mistake in the configuration. Others stay as they are.
func unusable(dir string, err error) error {
	for _, why := range []error{fs.ErrPermission, syscall.ENOTDIR, syscall.EROFS, syscall.ELOOP, syscall.ENAMETOOLONG} {
		if errors.Is(err, why) {
			return invalid("data-dir", "%s cannot be used: %w", dir, err).
				WithHint("name a folder that this user can write, with all that is in it: 'chown -R USER DIR', or another --data-dir")
		}
	}
	return err
}
