package native

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// settingsService serves SettingsService; its methods are documented in
// settings.proto.
type settingsService struct{ d *Door }

// GetSettings reads.
func (s settingsService) GetSettings(ctx context.Context, r *connect.Request[pb.GetSettingsRequest]) (*connect.Response[pb.GetSettingsResponse], error) {
	return reading(ctx, s.d, calls.Settings.Lane(), r.Msg.Stale, func(f *former) (*pb.GetSettingsResponse, error) {
		list, err := settingsOf(settings.Of(f.view), r.Msg.Name)
		if err != nil {
			return nil, err
		}
		return &pb.GetSettingsResponse{Settings: list, Index: uint64(f.view.Index())}, nil
	})
}

// settingsOf lists a setting, "": all, and behind each those that are given for some
// only.
func settingsOf(v *settings.View, name string) ([]*pb.ClusterSetting, error) {
	var list []*pb.ClusterSetting
	for _, d := range settings.All() {
		if name != "" && name != d.Name {
			continue
		}
		list = append(list, settingPB(&d, d.Name, v.Entry(d.Name)))
		for _, e := range v.Entries() {
			if of, pattern := settings.Split(e.Name); of == d.Name && pattern != "" {
				list = append(list, settingPB(&d, e.Name, e))
			}
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	d, ok := settings.Declared(name)
	e := v.Entry(name)
	if !ok || e == nil {
		return nil, incumbent.Errorf(incumbent.NotFound, "there is no setting %.400q", name).WithHint("'incumbent config get' lists them")
	}
	return []*pb.ClusterSetting{settingPB(&d, name, e)}, nil
}

// settingPB shows a setting; e is nil where it has its default.
func settingPB(d *settings.Declaration, name string, e *settings.Entry) *pb.ClusterSetting {
	p := &pb.ClusterSetting{
		Name: name, Value: d.Format(d.Default), Default: d.Format(d.Default), Unit: d.Unit.String(),
		Bounds: d.Bounds(), Does: d.Does, For: d.For.String(),
	}
	if e != nil {
		p.Value, p.ModifiedIndex = d.Format(e.Value), uint64(e.Modified)
	}
	return p
}

// SetSetting sets. Whoever runs out of room must be able to raise a limit.
func (s settingsService) SetSetting(ctx context.Context, r *connect.Request[pb.SetSettingRequest]) (*connect.Response[pb.SetSettingResponse], error) {
	c, err := settingCommand(r.Msg)
	if err != nil {
		return nil, s.d.callError(err)
	}
	res, err := s.d.change(ctx, change{
		call: calls.Settings, name: c.Name, command: c, key: r.Msg.Idempotency, header: r.Header(), reserve: true, about: "setting",
	})
	if err != nil {
		return nil, s.d.callError(err)
	}
	return connect.NewResponse(s.d.settingSet(c.Name, res)), nil
}

// settingSet answers with the setting as the command left it; of a known key, of which
// only the outcome was kept, as it is.
func (d *Door) settingSet(name string, res core.Result) *pb.SetSettingResponse {
	e, _ := res.Record.(*settings.Entry)
	if res.Replayed {
		e = settings.Of(d.view()).Entry(name)
	}
	is, _ := settings.Declared(name)
	p := settingPB(&is, name, e)
	return &pb.SetSettingResponse{Index: uint64(res.Index), Value: p.Value, ModifiedIndex: p.ModifiedIndex}
}

func settingCommand(in *pb.SetSettingRequest) (settings.Command, error) {
	c := settings.Command{Name: in.Name, Unset: in.Unset}
	if in.IfIndex != nil {
		at := incumbent.Index(*in.IfIndex)
		c.IfIndex = &at
	}
	if is, ok := settings.Declared(in.Name); ok && !in.Unset {
		if _, who := settings.Split(in.Name); who != "" && is.For == settings.Principals {
			if err := auth.CheckPrincipals(who); err != nil {
				return c, err
			}
		}
		v, err := is.Parse(in.Value)
		if err != nil {
			return c, err
		}
		c.Value = v
	}
	if in.Unset && in.Value != "" {
		return c, invalid("value", "does not go with unset")
	}
	return c, c.Validate()
}

// SettingsHistory reads what has changed.
func (s settingsService) SettingsHistory(ctx context.Context, r *connect.Request[pb.SettingsHistoryRequest]) (*connect.Response[pb.SettingsHistoryResponse], error) {
	return reading(ctx, s.d, calls.Settings.Lane(), r.Msg.Stale, func(f *former) (*pb.SettingsHistoryResponse, error) {
		out := &pb.SettingsHistoryResponse{Index: uint64(f.view.Index())}
		limit := cmp.Or(int(r.Msg.Limit), settings.MaxHistory)
		for _, c := range slices.Backward(settings.Of(f.view).History()) {
			if declared, _ := settings.Split(c.Name); r.Msg.Name != "" && r.Msg.Name != c.Name && r.Msg.Name != declared {
				continue
			}
			if len(out.Changes) == limit {
				break
			}
			out.Changes = append(out.Changes, settingChangePB(c))
		}
		return out, nil
	})
}

func settingChangePB(c *settings.Change) *pb.SettingChange {
	p := &pb.SettingChange{Index: uint64(c.Index), Name: c.Name, Principal: c.Origin.Principal, Address: c.Origin.Address}
	if !c.Origin.At.IsZero() {
		p.AtUnixMs = c.Origin.At.UnixMilli()
	}
	d, _ := settings.Declared(c.Name)
	if c.Before != nil {
		p.Before = d.Format(*c.Before)
	}
	if c.After != nil {
		p.After = d.Format(*c.After)
	}
	return p
}
