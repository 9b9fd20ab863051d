package settings

import (
	"time"

	"github.com/incumbent-dev/incumbent/core"
)

// Values are what all settings say. They never change.
type Values struct {
	n     [numKeys]int64
	terms core.Terms
	open  [NumOpen]core.Quota
}

// defaults are what settings say that nobody has set.
var defaults = valuesOf(nil)

// Int is the value of a setting that is a number, or a number of bytes.
func (v *Values) Int(k Key) int64 { return v.n[k] }

// Duration is the value of a setting that is one.
func (v *Values) Duration(k Key) time.Duration { return time.Duration(v.n[k]) * time.Millisecond }

// Mode is the value of a setting that is one.
func (v *Values) Mode(k Key) core.Mode { return core.Mode(v.n[k]) }

// valuesOf are those that the entries give: of a name that is for some only, what it
// says for all others.
func valuesOf(entries []*Entry) *Values {
	v := new(Values)
	for k := range table {
		v.n[k] = table[k].Default
	}
	for _, e := range entries {
		if k, ok := keyOf(e.Name); ok && e.Name == table[k].Name {
			v.n[k] = e.Value
		}
	}
	v.terms = core.Terms{KeyBytes: v.Int(KVQuotaBytes), Quotas: v.Mode(QuotaMode)}
	for k := range table {
		if table[k].quota != nil {
			table[k].quota(v).Each = v.n[k]
		}
	}
	for _, e := range entries {
		k, _ := keyOf(e.Name)
		if _, pattern := Split(e.Name); pattern != "" && table[k].quota != nil {
			table[k].quota(v).Set(pattern, e.Value)
		}
	}
	return v
}
