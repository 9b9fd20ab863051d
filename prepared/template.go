package prepared

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Compile returns an Invalid error if the query is a template that no name could be put
// into.
func (q *Query) Compile() error {
	if !q.isTemplate() {
		return nil
	}
	_, err := q.render("")
	return err
}

// asked is what a template is asked with.
type asked struct {
	name, prefix string
	groups       []string // of the expression
	size         int      // bytes that were filled in
}

// Render is the query for a name, if it is a template; it keeps its own.
func (q *Query) render(name string) (*Query, error) {
	if q.Template.Type != PrefixMatch {
		return nil, badTemplate("Bad Template.Type '%s'", q.Template.Type)
	}
	a := asked{name: name, prefix: q.Name}
	if q.Template.Regexp != "" {
		re, err := regexp.Compile(q.Template.Regexp)
		if err != nil {
			return nil, badTemplate("Bad Regexp: %w", err)
		}
		a.groups = re.FindStringSubmatch(name)
	}
	out := *q
	if err := a.service(&out.Service); err != nil {
		return nil, err
	}
	if q.Template.RemoveEmptyTags {
		out.Service.Tags = slices.DeleteFunc(out.Service.Tags, func(tag string) bool { return tag == "" })
	}
	return &out, nil
}

// maxRendered bounds what is filled in: a template may name a long name a thousand times.
const maxRendered = 128 << 10

func badTemplate(format string, args ...any) error {
	return incumbent.Errorf(incumbent.Invalid, "failed compiling template: "+format, args...)
}

// service fills a service in: all texts of it but the keys of metadata. Lists and maps
// are made anew.
func (a *asked) service(s *Service) (err error) {
	fill := func(place, text string) string {
		if err == nil {
			text, err = a.fill(place, text)
		}
		return text
	}
	list := func(place string, of *[]string) {
		*of = slices.Clone(*of)
		for i, text := range *of {
			(*of)[i] = fill(fmt.Sprintf("%s[%d]", place, i), text)
		}
	}
	pairs := func(place string, of *map[string]string) {
		*of = maps.Clone(*of)
		for key, text := range *of {
			(*of)[key] = fill(fmt.Sprintf("%s[%s]", place, key), text)
		}
	}
	s.Service = fill("Service.Service", s.Service)
	s.Near = fill("Service.Near", s.Near)
	s.SamenessGroup = fill("Service.SamenessGroup", s.SamenessGroup)
	s.Peer = fill("Service.Peer", s.Peer)
	list("Service.Tags", &s.Tags)
	list("Service.IgnoreCheckIDs", &s.IgnoreCheckIDs)
	list("Service.Failover.Datacenters", &s.Failover.Datacenters)
	pairs("Service.NodeMeta", &s.NodeMeta)
	pairs("Service.ServiceMeta", &s.ServiceMeta)
	s.Failover.Targets = slices.Clone(s.Failover.Targets)
	for i := range s.Failover.Targets {
		t := &s.Failover.Targets[i]
		t.Datacenter = fill("Service.Failover.Targets", t.Datacenter)
		t.Peer = fill("Service.Failover.Targets", t.Peer)
	}
	return err
}

// fill puts what was asked for into a text, at each ${…}; $${ stands for ${ itself.
func (a *asked) fill(place, text string) (string, error) {
	var out strings.Builder
	for at := 0; ; {
		i := strings.Index(text[at:], "${")
		if i < 0 {
			out.WriteString(text[at:])
			return out.String(), nil
		}
		i += at
		if i > at && text[i-1] == '$' {
			out.WriteString(text[at:i-1] + "${")
			at = i + 2
			continue
		}
		out.WriteString(text[at:i])
		size := strings.IndexByte(text[i:], '}')
		if size < 0 {
			return "", badTemplate("Bad format '%s' in %s: parse error at 1:%d: expected \"}\" but found end of string", text, place, len(text)+1)
		}
		value, unknown, from := a.value(text[i+2 : i+size])
		if unknown != "" {
			return "", badTemplate("Bad evaluation for '%s' in %s: 1:%d: unknown variable accessed: %s", text, place, i+3+from, unknown)
		}
		if a.size += len(value); a.size > maxRendered {
			return "", badTemplate("what is filled in, up to %s, has more than %d bytes", place, maxRendered)
		}
		out.WriteString(value)
		at = i + size + 1
	}
}

// value is what stands for an expression; or what of it nobody knows, and from where on.
func (a *asked) value(expression string) (value, unknown string, from int) {
	e := strings.TrimSpace(expression)
	switch e {
	case "name.full":
		return a.name, "", 0
	case "name.prefix":
		return a.prefix, "", 0
	case "name.suffix":
		return a.name[min(len(a.prefix), len(a.name)):], "", 0
	case "agent.segment": // there are none
		return "", "", 0
	}
	arg, isCall := strings.CutPrefix(e, "match(")
	arg, ends := strings.CutSuffix(arg, ")")
	if !isCall || !ends {
		return "", e, 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(arg))
	switch {
	case err != nil:
		return "", arg, len("match(")
	case n < 0 || n >= len(a.groups):
		return "", "", 0
	}
	return a.groups[n], "", 0
}
