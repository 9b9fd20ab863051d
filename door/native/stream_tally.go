package native

import (
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// streamTally counts the streams of each principal that has any here: what is open on one
// member is no part of the state.
type streamTally struct {
	mu   sync.Mutex // guards the map; held for one look-up
	open map[string]int64
}

// take counts one more, unless the principal has as many as it may. An operator may
// have any number.
func (t *streamTally) take(who auth.Principal, v *settings.Values) error {
	name := who.String()
	most := v.Streams().Of(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if has := t.open[name]; most > 0 && has >= most && who.Kind != auth.Operator && v.Mode(settings.QuotaMode) == core.Enforce {
		return incumbent.Errorf(incumbent.TooLarge, "principal %s has %d of the %d streams to one member that quota.streams allows", name, has, most).
			WithHint("close some, or an operator raises it: incumbent config set 'quota.streams@" + name + "' NUMBER")
	}
	t.open[name]++
	return nil
}

// give counts one less.
func (t *streamTally) give(who auth.Principal) {
	name := who.String()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[name]--; t.open[name] == 0 {
		delete(t.open, name)
	}
}
