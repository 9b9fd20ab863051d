package client

import (
	"context"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// Settings reads and changes the settings of the cluster. Its errors are
// *incumbent.Error. It is safe for concurrent use.
type Settings struct{ c *Client }

// Settings returns the settings of the cluster.
func (c *Client) Settings() Settings { return Settings{c} }

// Calls returns the plain calls.
func (s Settings) Calls() incumbentv1connect.SettingsServiceClient { return s.c.settings }

// Get returns a setting and those that are given for some only, "": all settings. The
// error is NotFound if there is none of the name.
func (s Settings) Get(ctx context.Context, name string) ([]*apiv1.ClusterSetting, error) {
	res, err := called(s.c.settings.GetSettings(ctx, connect.NewRequest(&apiv1.GetSettingsRequest{Name: name})))
	return res.GetSettings(), err
}

// SetOption says more about a change of a setting.
type SetOption func(*apiv1.SetSettingRequest)

// IfSetAt has a change fail with the kind Conflict unless the setting was last set at
// index; 0: unless it has its default.
func IfSetAt(index incumbent.Index) SetOption {
	return func(r *apiv1.SetSettingRequest) { at := uint64(index); r.IfIndex = &at }
}

// Set gives a setting a value. Repeated by this client when an answer is lost, it
// still takes effect once.
func (s Settings) Set(ctx context.Context, name, value string, opts ...SetOption) (*apiv1.SetSettingResponse, error) {
	return s.set(ctx, &apiv1.SetSettingRequest{Name: name, Value: value}, opts)
}

// Unset gives a setting its default again.
func (s Settings) Unset(ctx context.Context, name string, opts ...SetOption) (*apiv1.SetSettingResponse, error) {
	return s.set(ctx, &apiv1.SetSettingRequest{Name: name, Unset: true}, opts)
}

func (s Settings) set(ctx context.Context, r *apiv1.SetSettingRequest, opts []SetOption) (*apiv1.SetSettingResponse, error) {
	r.Idempotency = s.c.NewKey()
	for _, o := range opts {
		o(r)
	}
	return called(s.c.settings.SetSetting(ctx, connect.NewRequest(r)))
}

// History returns what has changed, newest first, as far as it is kept; name "": of
// all settings, limit 0: all.
func (s Settings) History(ctx context.Context, name string, limit uint32) ([]*apiv1.SettingChange, error) {
	res, err := called(s.c.settings.SettingsHistory(ctx, connect.NewRequest(&apiv1.SettingsHistoryRequest{Name: name, Limit: limit})))
	return res.GetChanges(), err
}
