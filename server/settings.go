package server

import (
	"strconv"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// settings are what those say now.
func (s *Server) settings() *settings.Values { return settings.Of(s.engine.View()).Values() }

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
