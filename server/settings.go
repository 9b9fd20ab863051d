package server

import (
	"runtime"
	"strconv"

	"github.com/incumbent-dev/incumbent/admit"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// obey acts by the settings of a state, where they are not looked up in the view. It is
// called on the apply goroutine.
func (s *Server) obey(v *core.View) {
	is := settings.Of(v).Values()
	if is == s.obeys {
		return
	}
	s.obeys = is
	for _, g := range s.gates() {
		g.SetStrangers(int(is.Int(settings.StrangersUnproven)), is.Duration(settings.StrangersFirstByte))
	}
	s.pace.SetRate(int(is.Int(settings.StrangersFailing)) * runtime.GOMAXPROCS(0))
	s.admission.SetMode([...]admit.Mode{core.Off: admit.Off, core.Observe: admit.Observe, core.Enforce: admit.Enforce}[is.Mode(settings.AdmissionMode)])
	if err := s.admission.SetLimits(admit.Limits{
		Target: is.Duration(settings.AdmissionTarget), Retry: is.Duration(settings.AdmissionRetry), MaxRetry: is.Duration(settings.AdmissionMostRetry),
		Min: int(is.Int(settings.AdmissionLeast)), Max: int(is.Int(settings.AdmissionMost)),
	}); err != nil {
		s.log.Error("limits of admission not changed", "cause", err) // their bounds do not let them cross
	}
}

// guessLimits are how much may be guessed, by the settings of now.
func (s *Server) guessLimits() auth.GuessLimits {
	is := settings.Of(s.engine.View()).Values()
	return auth.GuessLimits{
		Tag: int(is.Int(settings.LoginGuesses)), TagEvery: is.Duration(settings.LoginGuessEvery),
		Address: int(is.Int(settings.LoginAddressGuesses)), AddressEvery: is.Duration(settings.LoginAddressGuessEvery),
	}
}

// clusterSettings puts those of the cluster behind the member's own.
func (o operator) clusterSettings(out *apiv1.SettingsResponse) {
	v := settings.Of(o.engine.View())
	show := func(d *settings.Declaration, name string, e *settings.Entry) {
		s := &apiv1.Setting{Name: name, Value: d.Format(d.Default), Source: "cluster default"}
		if e != nil {
			s.Value, s.Source = d.Format(e.Value), "cluster"
		}
		out.Settings = append(out.Settings, s)
	}
	for _, d := range settings.All() {
		show(&d, d.Name, v.Entry(d.Name))
	}
	for _, e := range v.Entries() {
		if _, pattern := settings.Split(e.Name); pattern != "" {
			if d, ok := settings.Declared(e.Name); ok {
				show(&d, e.Name, e)
			}
		}
	}
}

// setting notes who changed a setting.
func (t *timeline) setting(c *core.Change) {
	d, _ := settings.Declared(c.Family.Topic.Name)
	value := func(what any) string {
		if e, ok := what.(*settings.Entry); ok {
			return d.Format(e.Value)
		}
		return "the default, " + d.Format(d.Default)
	}
	by := c.Origin.Principal
	if c.Origin.Address != "" {
		by += " at " + c.Origin.Address
	}
	t.add(Event{
		What: "setting changed", Subject: c.Family.Topic.Name, Index: uint64(c.Index),
		Detail: "from " + value(c.Family.Before) + " to " + value(c.Family.After) + ", by " + strconv.Quote(by),
	})
}
