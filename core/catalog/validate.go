package catalog

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/incumbent-dev/incumbent"
)

// Validate returns an Invalid or TooLarge error for what no state could make right.
func (c *Command) Validate() error {
	if err := incumbent.ValidateNamespace(c.Target.Namespace); err != nil {
		return err
	}
	if err := name("node", c.Target.Node); err != nil {
		return err
	}
	if err := c.belongs(); err != nil {
		return err
	}
	switch c.Verb {
	case Register:
		return c.validateRegister()
	case OpenSession:
		return c.Session.validate()
	case UpdateCheck:
		if c.Status >= numStatuses {
			return incumbent.Errorf(incumbent.Invalid, "the status is none")
		}
		return most("output", c.Output, MaxOutputBytes)
	}
	return nil
}

// belongs refuses fields that mean nothing to the verb.
func (c *Command) belongs() error {
	register := c.Verb == Register
	targets := c.Verb != Register && c.Verb != OpenSession
	switch {
	case c.Verb == 0 || c.Verb >= numVerbs:
		return incumbent.Errorf(incumbent.Invalid, "the command is of no kind")
	case !register && (c.Node != nil || c.Service != nil || len(c.Checks) > 0 || c.KeepOutput):
		return incumbent.Errorf(incumbent.Invalid, "only registering has records")
	case (c.Session != nil) != (c.Verb == OpenSession):
		return incumbent.Errorf(incumbent.Invalid, "a session belongs to its opening")
	case c.If && !register && c.Verb != Deregister && c.Verb != Get:
		return incumbent.Errorf(incumbent.Invalid, "only registering, deregistering and reading have a condition")
	case c.Index != 0 && (!c.If || c.Verb == Get) && c.Verb != Lapse:
		return incumbent.Errorf(incumbent.Invalid, "an index belongs to a condition")
	case c.Verb != UpdateCheck && (c.Status != 0 || c.Output != "" || c.StatusOnly):
		return incumbent.Errorf(incumbent.Invalid, "a status belongs to the update of a check")
	case !targets && (c.Target.Kind != 0 || c.Target.ID != ""), targets && (c.Target.Kind == 0 || c.Target.Kind >= numKinds),
		(c.Verb == UpdateCheck || c.Verb == Lapse) && c.Target.Kind != CheckKind:
		return incumbent.Errorf(incumbent.Invalid, "the command names no record of a kind that it is for")
	case !targets:
		return nil
	case c.Target.Kind == NodeKind && c.Target.ID != "":
		return incumbent.Errorf(incumbent.Invalid, "a node has no id beside its name")
	case c.Target.Kind == NodeKind:
		return nil
	}
	return name("id", c.Target.ID)
}

func (c *Command) validateRegister() error {
	records := len(c.Checks)
	if c.Node != nil {
		records++
		if err := c.Node.validate(); err != nil {
			return err
		}
	}
	if c.Service != nil {
		records++
		if err := c.Service.validate(); err != nil {
			return err
		}
	}
	if len(c.Checks) > MaxChecksInCommand {
		return incumbent.Errorf(incumbent.TooLarge, "checks of a command: limit MaxChecksInCommand is %d", MaxChecksInCommand)
	}
	ids := make(map[string]bool, len(c.Checks))
	for _, k := range c.Checks {
		if err := k.validate(); err != nil {
			return err
		}
		if ids[incumbent.Fold(k.ID)] {
			return incumbent.Errorf(incumbent.Invalid, "check %.80q comes twice", k.ID)
		}
		ids[incumbent.Fold(k.ID)] = true
	}
	if records == 0 || c.If && records != 1 {
		return incumbent.Errorf(incumbent.Invalid, "registering has a record, and with a condition one")
	}
	return nil
}

func (n *Node) validate() error {
	return first(
		most("id of a node", n.ID, MaxNameBytes), most("address", n.Address, MaxAddressBytes),
		pairsValid("tagged addresses", n.TaggedAddresses), pairsValid("metadata", n.Meta),
	)
}

// Until all members know of longer tags than the first version of services had, of several
// ports and of sockets, there are none: they would refuse what this one executes.
const (
	tagsSchema       = 11 // and of ports and sockets
	firstMaxTagBytes = 512
)

// FollowSchema is the [core.SchemaVersion] from which checks follow sessions.
const FollowSchema = 11

// tooNew is that of a service; nil: there is none.
func (s *Service) tooNew(active uint32) *incumbent.Error {
	if s == nil || active >= tagsSchema {
		return nil
	}
	for _, tag := range s.Tags {
		if len(tag) > firstMaxTagBytes {
			return incumbent.Errorf(incumbent.TooLarge, "tag has %d bytes; %d are allowed until all members know of longer ones", len(tag), firstMaxTagBytes)
		}
	}
	if len(s.Ports) > 0 || s.SocketPath != "" {
		return refused(incumbent.Invalid, "services have neither several ports nor a socket until all members know of them")
	}
	return nil
}

// tooNew is that of a check.
func (c *Check) tooNew(active uint32) *incumbent.Error {
	if c.SessionName == "" || active >= FollowSchema {
		return nil
	}
	return refused(incumbent.Invalid, "checks follow no session until all members know of that")
}

func (s *Service) validate() error {
	if len(s.Tags) > MaxTags {
		return incumbent.Errorf(incumbent.TooLarge, "tags: limit MaxTags is %d", MaxTags)
	}
	all := 0
	for _, tag := range s.Tags {
		if err := most("tag", tag, MaxTagBytes); err != nil {
			return err
		}
		all += len(tag)
	}
	if all > MaxTagsBytes {
		return incumbent.Errorf(incumbent.TooLarge, "tags have %d bytes; %d are allowed", all, MaxTagsBytes)
	}
	if len(s.TaggedAddresses) > MaxPairs {
		return incumbent.Errorf(incumbent.TooLarge, "tagged addresses: limit MaxPairs is %d", MaxPairs)
	}
	for i, a := range s.TaggedAddresses {
		if i > 0 && a.Name <= s.TaggedAddresses[i-1].Name {
			return incumbent.Errorf(incumbent.Invalid, "tagged addresses are not in the order of their names")
		}
		if err := first(most("name of an address", a.Name, MaxPairKeyBytes), most("address", a.Address, MaxAddressBytes)); err != nil {
			return err
		}
	}
	if s.Weights.Passing > MaxWeight || s.Weights.Warning > MaxWeight {
		return incumbent.Errorf(incumbent.Invalid, "a weight is more than %d", MaxWeight)
	}
	return first(name("id of a service", s.ID), name("service", s.Name), most("kind", s.Kind, MaxTextBytes),
		most("address", s.Address, MaxAddressBytes), most("socket", s.SocketPath, MaxAddressBytes), pairsValid("metadata", s.Meta), s.portsValid())
}

func (s *Service) portsValid() error {
	if len(s.Ports) > MaxPorts {
		return incumbent.Errorf(incumbent.TooLarge, "ports: limit MaxPorts is %d", MaxPorts)
	}
	names, defaults := make(map[string]bool, len(s.Ports)), 0
	for _, p := range s.Ports {
		switch {
		case p.Name == "" || names[p.Name] || p.Port == 0:
			return incumbent.Errorf(incumbent.Invalid, "a port is 0, or has no name of its own")
		case p.Default && p.Port != s.Port:
			return incumbent.Errorf(incumbent.Invalid, "the port of the service is not the default one")
		case p.Default:
			defaults++
		}
		if err := most("name of a port", p.Name, MaxPairKeyBytes); err != nil {
			return err
		}
		names[p.Name] = true
	}
	if len(s.Ports) > 0 && defaults != 1 {
		return incumbent.Errorf(incumbent.Invalid, "of several ports one is the default")
	}
	return nil
}

func (c *Check) validate() error {
	switch {
	case c.Status >= numStatuses:
		return incumbent.Errorf(incumbent.Invalid, "the status is none")
	case len(c.Definition) > MaxDefinitionBytes:
		return incumbent.Errorf(incumbent.TooLarge, "definition of a check: limit MaxDefinitionBytes is %d", MaxDefinitionBytes)
	case !lasts(c.TTL, MaxDuration) || !lasts(c.DeregisterAfter, MaxDuration):
		return incumbent.Errorf(incumbent.Invalid, "a duration of a check is outside 0 to %v, or no whole milliseconds", MaxDuration)
	case c.SessionName != "" && c.ServiceID != "":
		return incumbent.Errorf(incumbent.Invalid, "a check that follows a session is of a node")
	case c.ServiceID != "" && name("id of a service", c.ServiceID) != nil:
		return name("id of a service", c.ServiceID)
	}
	return first(name("id of a check", c.ID), most("name of a check", c.Name, MaxNameBytes), most("notes", c.Notes, MaxNotesBytes),
		most("output", c.Output, MaxOutputBytes), most("type", c.Type, MaxTextBytes),
		most("interval", c.Interval, MaxTextBytes), most("timeout", c.Timeout, MaxTextBytes), most("name of a session", c.SessionName, MaxTextBytes))
}

func (s *Session) validate() error {
	switch {
	case s.ID.IsZero():
		return incumbent.Errorf(incumbent.Invalid, "a session needs an id")
	case s.Behavior >= numBehaviors:
		return incumbent.Errorf(incumbent.Invalid, "the behavior of the session is none")
	case !lasts(s.LockDelay, MaxLockDelay):
		return incumbent.Errorf(incumbent.Invalid, "lock delay of %v is outside 0 to %v", s.LockDelay, MaxLockDelay)
	case s.TTL != 0 && incumbent.ValidateTTL(s.TTL) != nil:
		return incumbent.ValidateTTL(s.TTL)
	case !lasts(s.TTL, MaxDuration):
		return incumbent.Errorf(incumbent.Invalid, "a ttl is whole milliseconds")
	case len(s.NodeChecks) > MaxChecksPerSession || len(s.ServiceChecks) > MaxChecksPerSession:
		return incumbent.Errorf(incumbent.TooLarge, "checks of a session: limit MaxChecksPerSession is %d", MaxChecksPerSession)
	}
	for _, id := range s.checks() {
		if err := name("id of a check", id); err != nil {
			return err
		}
	}
	return most("name of a session", s.Name, MaxTextBytes)
}

// lasts reports whether a duration is 0 to limit, in whole milliseconds.
func lasts(d, limit time.Duration) bool { return d >= 0 && d <= limit && d%time.Millisecond == 0 }

// name checks what names something: 1 to MaxNameBytes bytes of UTF-8 without control
// characters.
func name(what, s string) error {
	if s == "" {
		return incumbent.Errorf(incumbent.Invalid, "%s is empty", what)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return incumbent.Errorf(incumbent.Invalid, "%s has a control character", what)
	}
	return most(what, s, MaxNameBytes)
}

// most checks a text.
func most(what, s string, limit int) error {
	if len(s) > limit {
		return incumbent.Errorf(incumbent.TooLarge, "%s has %d bytes; %d are allowed", what, len(s), limit)
	}
	if !utf8.ValidString(s) {
		return incumbent.Errorf(incumbent.Invalid, "%s is not UTF-8", what)
	}
	return nil
}

func pairsValid(what string, list []Pair) error {
	if len(list) > MaxPairs {
		return incumbent.Errorf(incumbent.TooLarge, "%s: limit MaxPairs is %d", what, MaxPairs)
	}
	for i, p := range list {
		if i > 0 && p.Key <= list[i-1].Key {
			return incumbent.Errorf(incumbent.Invalid, "%s are not in the order of their keys", what)
		}
		if err := first(most("key", p.Key, MaxPairKeyBytes), most("value", p.Value, MaxPairValueBytes)); err != nil {
			return err
		}
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
