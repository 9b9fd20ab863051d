package server

import (
	"slices"
	"strings"
)

// Reload reads certificates, credentials and passwords of Juju's agents again, and
// opens the audit log anew, which whoever rotates files may have moved away. What
// fails is logged and named among the events, and what was there before stays in
// force. stale names what else stays as it was, for the same event: what the caller
// could not reload, and has logged. Whoever would not be let in any more by what it
// came in with is cut off: see recheck.
func (s *Server) Reload(stale ...string) {
	stale = slices.Clone(stale) // the caller's own is not written to
	s.trail.reopen()
	if s.certs != nil {
		if err := s.certs.reload(); err != nil {
			s.log.Warn("certificates not reloaded", "cause", err)
			stale = append(stale, "certificates")
		}
	}
	if err := s.guard.reload(); err != nil {
		s.log.Warn("credentials not reloaded", "cause", err)
		stale = append(stale, "credentials")
	}
	if err := s.reloadOVSDB(); err != nil {
		s.log.Warn("certificates of ovsdb's door not reloaded", "cause", err)
		stale = append(stale, "certificates of ovsdb's door")
	}
	if err := s.reloadJuju(); err != nil {
		s.log.Warn("passwords of juju's agents not reloaded", "cause", err)
		stale = append(stale, "passwords of juju's agents")
	}
	s.recheck()
	if len(stale) > 0 {
		s.events.add(Event{What: "reload failed", Subject: s.cfg.Name, Detail: "still the old: " + strings.Join(stale, ", ") + "; the log says why"})
		return
	}
	s.events.add(Event{What: "reloaded", Subject: s.cfg.Name})
}

// reloadJuju reads the passwords again. On an error the old ones stay in force.
func (s *Server) reloadJuju() error {
	if s.juju == nil || s.cfg.Juju.CredentialFile == "" {
		return nil
	}
	found, err := readPasswords(s.cfg.Juju.CredentialFile)
	if err != nil {
		return err
	}
	s.juju.verifier.SetPasswords(found)
	return nil
}
