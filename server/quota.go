package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// quotaWarnPercent is how full the quota of keys and values is when a member
// begins to warn of it.
const quotaWarnPercent = 80

// keyBytes is what keys and values have together.
func (s *Server) keyBytes() int64 { return kv.Of(s.engine.View()).Bytes() }

// quotaNear reports whether keys and values come near their quota.
func (s *Server) quotaNear(used int64) bool {
	return used > 0 && used >= s.quotaBytes()/100*quotaWarnPercent
}

// quotaBytes is what they may have.
func (s *Server) quotaBytes() int64 { return s.engine.View().Terms().KeyBytes }

// quotaWarnings are what an operator should know of that.
func (s *Server) quotaWarnings() []string {
	used := s.keyBytes()
	if !s.quotaNear(used) {
		return nil
	}
	return []string{fmt.Sprintf("keys and values have %d MiB of their %d MiB, beyond which puts and locks are refused: delete some (that always works), or raise kv.quota-bytes with 'incumbent config set'",
		used>>20, s.quotaBytes()>>20)}
}

// quotaLimits are how near the fullest comes to each quota of a principal or namespace.
func (s *Server) quotaLimits(view *core.View) (list []*apiv1.Limit) {
	for scope := range core.NumScopes {
		for i, full := range view.Usage().Fullest(view.Terms(), scope) {
			if full.Name == "" {
				continue
			}
			k := core.Counted(i)
			unit := k.String()
			if k == core.KeyBytes {
				unit = "bytes"
			}
			list = append(list, &apiv1.Limit{
				Name: fmt.Sprintf("%v of %v %s", k, scope, full.Name), Unit: unit, Value: uint64(full.Most), Used: uint64(full.Has), Setting: scope.Setting(k),
			})
		}
	}
	for k := range settings.NumOpen {
		if who, has, most, found := s.tally.Fullest(k); found {
			list = append(list, &apiv1.Limit{
				Name: fmt.Sprintf("%s of %s %s, here", k.Words(), k.Scope(), who), Unit: k.String(), Value: uint64(most), Used: uint64(has), Setting: k.Setting(),
			})
		}
	}
	return list
}

// registerQuotas exports how much quotas have refused.
func (s *Server) registerQuotas() {
	exceeded := func(of, quota string, n func() uint64) {
		s.metrics.counter("incumbent_quota_exceeded_total", "What was over a quota of a principal, namespace or source address, and refused or (observed) executed.",
			prometheus.Labels{"of": of, "quota": quota}, func() float64 { return float64(n()) })
	}
	for k := range settings.NumOpen {
		exceeded(k.Scope(), k.String(), func() uint64 { return s.tally.Over(k) })
	}
	for scope := range core.NumScopes {
		for k := range core.NumCounted {
			exceeded(scope.String(), k.String(), func() uint64 { return s.engine.View().Usage().Over(scope, k) })
		}
	}
}

// watchQuota puts into the timeline that keys and values come near their quota,
// and that they have room again. It returns what to call it with next.
func (s *Server) watchQuota(was bool) bool {
	used := s.keyBytes()
	near := s.quotaNear(used)
	if near == was {
		return was
	}
	e := Event{What: "keys near quota", Detail: fmt.Sprintf("%d of %d bytes, delete some or raise kv.quota-bytes", used, s.quotaBytes())}
	if !near {
		e = Event{What: "keys below quota", Detail: fmt.Sprintf("%d of %d bytes", used, s.quotaBytes())}
	}
	s.events.add(e)
	return near
}
