package lease

import (
	"io"

	"github.com/incumbent-dev/incumbent/core"
)

// state is a state that has leases, with their tables.
type state struct {
	*core.State
	t      *tables
	limits limited
}

// limited are all limits that tests make smaller.
type limited struct {
	limits
	core.Limits
}

func noLimits() limited {
	return limited{defaultLimits(), core.Limits{Sessions: core.MaxSessions, Kept: core.MaxKeptResults, Members: core.MaxMembers, Gone: core.MaxGoneMembers}}
}

// tested is the family, whose tables a test sees.
type tested struct {
	Family
	tables *tables
}

func (f *tested) New() core.Tables {
	f.tables = newTables()
	return f.tables
}

// New returns the empty state with leases and other families behind them.
func New(more ...core.Family) *state {
	f := new(tested)
	s := core.New(append([]core.Family{f}, more...)...)
	return &state{s, f.tables, noLimits()}
}

// Restore reads a snapshot of such a state.
func Restore(r io.Reader, more ...core.Family) (*state, error) {
	f := new(tested)
	s, err := core.Restore(r, append([]core.Family{f}, more...)...)
	if err != nil {
		return nil, err
	}
	return &state{s, f.tables, noLimits()}, nil
}

// limit has other limits hold.
func (s *state) limit(l limited) {
	s.limits = l
	s.t.limits = l.limits
	s.Limit(l.Limits)
}

// apply executes one command.
func (s *state) apply(cmd []byte) core.Result {
	r := make([]core.Result, 1)
	s.Apply([][]byte{cmd}, r)
	return r[0]
}
