package settings

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

func newState() *core.State { return core.New(Family{}) }

// do executes one command of an operator.
func do(t testing.TB, s *core.State, c core.Command) core.Result {
	t.Helper()
	results := make([]core.Result, 1)
	s.Apply([][]byte{c.Encode(core.Meta{Origin: core.Origin{At: time.UnixMilli(7).UTC(), Address: "host:1", Principal: "operator:ann"}})}, results)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return results[0]
}

func set(t testing.TB, s *core.State, name string, value int64) {
	t.Helper()
	if r := do(t, s, Command{Name: name, Value: value}); r.Err != nil {
		t.Fatalf("%s: %v", name, r.Err)
	}
}

// The table is what operators, doors and members have in common: whoever adds to it
// finds out here what it has to say.
func TestDeclarationsAreWhole(t *testing.T) {
	names := map[string]bool{}
	for i := range table {
		d := &table[i]
		switch {
		case d.Name == "" || strings.ContainsAny(d.Name, "@* ") || names[d.Name]:
			t.Errorf("setting %d: the name is %q", i, d.Name)
		case d.Does == "":
			t.Errorf("%s: nothing says what it does", d.Name)
		case d.Min < 0 || d.Default < d.Min || d.Default > d.Max:
			t.Errorf("%s: %d is outside %d to %d", d.Name, d.Default, d.Min, d.Max)
		case d.Schema < Family{}.Schema() || d.Schema > core.SchemaVersion:
			t.Errorf("%s: schema %d", d.Name, d.Schema)
		case (d.For == Nobody) != (d.quota == nil):
			t.Errorf("%s: it is for a %v, and nobody reads that", d.Name, d.For)
		case d.Unit == Modes && d.Max != int64(core.Enforce):
			t.Errorf("%s: %d modes", d.Name, d.Max)
		}
		names[d.Name] = true
		for _, v := range []int64{d.Min, d.Default, d.Max} {
			if got, err := d.Parse(d.Format(v)); err != nil || got != v {
				t.Errorf("%s: %d is written %s and read %d, %v", d.Name, v, d.Format(v), got, err)
			}
		}
	}
}

func TestAChangeActsAndIsRemembered(t *testing.T) {
	s := newState()
	old := Of(s.View())
	set(t, s, "kv.quota-bytes", 5*mib)
	set(t, s, "quota.sessions@agent:a*", 3)
	set(t, s, "quota.sessions@agent:ab", 4)
	if r := do(t, s, Command{Name: "kv.quota-bytes", Unset: true}); r.Err != nil || r.Record.(*Entry) != nil {
		t.Errorf("unset: %+v", r)
	}
	v := Of(s.View())
	q := v.Values().terms.Principals[core.Sessions]
	for name, want := range map[string]int64{"agent:a": 3, "agent:ab": 4, "agent:abc": 3, "agent:b": 10_000} {
		if got := q.Of(name); got != want {
			t.Errorf("%s may have %d sessions, want %d", name, got, want)
		}
	}
	if old.Values().Int(KVQuotaBytes) != 2*gib || len(old.Entries()) != 0 || len(old.History()) != 0 {
		t.Error("an older view has changed")
	}
	var lines []string
	for _, c := range v.History() {
		lines = append(lines, fmt.Sprintf("%d %s %s", c.Index, c.Name, c.Origin.Principal))
	}
	want := "1 kv.quota-bytes operator:ann\n2 quota.sessions@agent:a* operator:ann\n3 quota.sessions@agent:ab operator:ann\n4 kv.quota-bytes operator:ann"
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("history:\n%s", got)
	}
}

// Whoever proposes it, apply refuses what no member may be told.
func TestApplyRefusesWhatCannotBe(t *testing.T) {
	one := incumbent.Index(1)
	for what, c := range map[string]struct {
		c    Command
		want incumbent.Kind
	}{
		"no such setting":    {Command{Name: "kv.quota", Value: 1}, incumbent.NotFound},
		"too little":         {Command{Name: "kv.quota-bytes"}, incumbent.Invalid},
		"too much":           {Command{Name: "kv.quota-bytes", Value: 2 * tib}, incumbent.Invalid},
		"a mode of no kind":  {Command{Name: "quota.mode", Value: 3}, incumbent.Invalid},
		"for nobody":         {Command{Name: "quota.mode@agent:a", Value: 1}, incumbent.Invalid},
		"control characters": {Command{Name: "quota.sessions@agent:\x1b", Value: 1}, incumbent.Invalid},
		"a long pattern":     {Command{Name: "quota.sessions@" + strings.Repeat("a", MaxPatternBytes+1), Value: 1}, incumbent.Invalid},
		"not as it was":      {Command{Name: "quota.mode", Value: 1, IfIndex: &one}, incumbent.Conflict},
	} {
		s := newState()
		if r := do(t, s, c.c); r.Err == nil || r.Err.Kind != c.want || len(Of(s.View()).History()) != 0 {
			t.Errorf("%s: %v", what, r.Err)
		}
	}
}

func TestSettingsAreBounded(t *testing.T) {
	s := newState()
	for i := range MaxSet {
		set(t, s, fmt.Sprintf("quota.sessions@agent:%d", i), 1)
	}
	if r := do(t, s, Command{Name: "quota.mode", Value: 1}); r.Err == nil || r.Err.Kind != incumbent.TooLarge {
		t.Errorf("one more: %v", r.Err)
	}
	set(t, s, "quota.sessions@agent:0", 2)
	if n := len(Of(s.View()).History()); n != MaxHistory {
		t.Errorf("%d changes are remembered", n)
	}
}

// A state comes back from its snapshot as it was, what follows from it, too.
func TestG29_SettingsComeBackFromASnapshot(t *testing.T) {
	s := newState()
	set(t, s, "kv.quota-bytes", 5*mib)
	set(t, s, "quota.sessions@agent:a*", 0)
	set(t, s, "quota.mode", 0)
	do(t, s, Command{Name: "quota.mode", Unset: true})
	var b bytes.Buffer
	if err := s.View().WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	again, err := core.Restore(bytes.NewReader(b.Bytes()), Family{})
	if err != nil {
		t.Fatal(err)
	}
	if again.View().Hash() != s.View().Hash() {
		t.Error("another hash")
	}
	v := Of(again.View()).Values()
	if v.Int(KVQuotaBytes) != 5*mib || v.Mode(QuotaMode) != core.Enforce || v.terms.Principals[core.Sessions].Of("agent:ab") != 0 || again.View().Terms() == nil {
		t.Errorf("%+v", v)
	}
	if got := again.View().Terms().KeyBytes; got != 5*mib {
		t.Errorf("the terms say %d", got)
	}
	for i := range b.Len() { // damage of a byte is noticed, or gives a state that holds together
		bad := bytes.Clone(b.Bytes())
		bad[i] ^= 1
		if got, err := core.Restore(bytes.NewReader(bad), Family{}); err == nil && got.Check() != nil {
			t.Errorf("byte %d: %v", i, got.Check())
		}
	}
}

func FuzzDecode(f *testing.F) {
	at := incumbent.Index(5)
	for _, c := range []Command{{Name: "quota.mode", Value: 1}, {Name: "quota.sessions@a*", Unset: true, IfIndex: &at}} {
		b := c.Encode(core.Meta{})
		f.Add(b[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Command
		if c.decode(b) && c.Validate() == nil {
			s := newState()
			do(t, s, c)
		}
	})
}
