package juju

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

func TestTooDeep(t *testing.T) {
	for text, want := range map[string]bool{
		strings.Repeat("[", maxNesting) + strings.Repeat("]", maxNesting): false,
		strings.Repeat("[", maxNesting+1):                                 true,
		strings.Repeat(`{"a":`, maxNesting+1):                             true,
		`"` + strings.Repeat("[", 100) + `"`:                              false,
		`"\"` + strings.Repeat("[", 100) + `"`:                            false,
		strings.Repeat("[]", 100):                                         false,
		`"\`:                                                              false,
	} {
		if got := tooDeep([]byte(text)); got != want {
			t.Errorf("%.40s: %v", text, got)
		}
	}
}

func TestDecodeRequest(t *testing.T) {
	for text, want := range map[string]bool{
		`{"request-id":1,"type":"Pinger","version":1,"request":"Ping"}`: true,
		`{"REQUEST-ID":1}`:                    true, // keys in any case, as the original
		`{"request-id":18446744073709551615}`: true,
		`{"request-id":18446744073709551616}`: false,
		`{"request-id":-1}`:                   false,
		`{"request-id":0}`:                    false,
		`{}`:                                  false,
		`[]`:                                  false,
		`null`:                                false,
		``:                                    false,
		`{"request-id":1,"params":` + strings.Repeat("[", 1000): false,
	} {
		if _, got := decodeRequest([]byte(text)); got != want {
			t.Errorf("%.60s: %v", text, got)
		}
	}
}

func TestSeconds(t *testing.T) {
	for in, want := range map[float64]time.Duration{
		5: 5 * time.Second, 6.25: 6250 * time.Millisecond, 300: 5 * time.Minute,
		4.999: 0, 300.001: 0, 0: 0, -6: 0, math.Inf(1): 0, math.Inf(-1): 0, math.MaxFloat64: 0,
	} {
		got, ok := seconds(in)
		if got != want || ok != (want != 0) {
			t.Errorf("%v: %v, %v", in, got, ok)
		}
	}
	if _, ok := seconds(math.NaN()); ok {
		t.Error("NaN is a duration")
	}
}

func TestTags(t *testing.T) {
	for tag, want := range map[string]string{
		"unit-app-0": "app/0", "unit-my-app-12": "my-app/12", "unit-a1-b2c-3": "a1-b2c/3",
		"unit-app": "", "unit-app-": "", "unit--0": "", "unit-app-01": "", "unit-app-x": "", "unit-1app-0": "", "unit-app-1-0": "",
		"unit-App-0": "", "unit-app--0": "", "unit-app-1234567890": "", "app/0": "", "": "", "unit-": "", "application-app": "",
		"unit-" + strings.Repeat("a", maxApplication+1) + "-0": "",
	} {
		got, application, ok := unitOf(tag)
		if got != want || ok != (want != "") || ok && !strings.HasPrefix(got, application+"/") {
			t.Errorf("%s: %q of %q, %v", tag, got, application, ok)
		}
	}
	for tag, want := range map[string]string{"application-app": "app", "application-a-b": "a-b", "application-a-1": "", "application-": "", "app": "", "unit-app-0": ""} {
		if got, ok := applicationOf(tag); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", tag, got, ok)
		}
	}
	for tag, want := range map[string]bool{
		"machine-0": true, "controller-1": true, "machine-x": false, "user-admin": false, "unit-app-0": true, "application-app": true, "": false,
		"machine-0-lxd-1": true, "machine-10-lxd-1-kvm-22": true, "machine-0-lxd": false, "machine-0-lxd-": false, "machine-0--1": false, "machine-": false,
		"machine-0-LXD-1": false, "machine-0-lxd-01": false, "machine-0-lxd-1-": false, "machine-lxd-1": false, "controller-0-lxd-1": false,
		"machine-0" + strings.Repeat("-lxd-1", maxApplication): false,
	} {
		if isAgent(tag) != want {
			t.Errorf("%q: not %v", tag, want)
		}
	}
}

// Whatever the bytes: no panic, and what is accepted is within bounds.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(claimText(1, "app", "app-0", "6")))
	f.Add([]byte(blockText(1, "app")))
	f.Add([]byte(`{"request-id":1,"type":"Singular","request":"Claim","params":{"claims":[{"entity-tag":"model-` + testModel + `","claimant-tag":"machine-0","duration":6e10}]}}`))
	f.Add([]byte(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":"unit-app-0","credentials":"x"}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, ok := decodeRequest(in)
		if !ok {
			return
		}
		if !json.Valid(in) || tooDeep(in) {
			t.Fatal("what is not JSON was accepted")
		}
		var l loginParams
		_ = decodeParams(&r, &l)
		var b blockParams
		_ = decodeParams(&r, &b)
		var s singularParams
		_ = decodeParams(&r, &s)
		var c claimParams
		if decodeParams(&r, &c) != nil {
			return
		}
		for _, p := range c.Params {
			if d, ok := seconds(p.Duration); ok && (d < MinDuration || d > MaxDuration) {
				t.Fatalf("%v is %v", p.Duration, d)
			}
			if unit, application, ok := unitOf(p.Unit); ok {
				name := nameOf(testModel, application)
				if name.Validate() != nil || incumbent.ValidateHolder(unit) != nil {
					t.Fatalf("%q names what no lease may be named", p.Unit)
				}
			}
		}
	})
}

// What is written is JSON that says the same.
func FuzzAppendString(f *testing.F) {
	f.Add("a\"b\\c\x00\x1f\x7f\xffü\u2028")
	f.Fuzz(func(t *testing.T, in string) {
		var got string
		b := appendString(nil, in)
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if want := strings.ToValidUTF8(in, "\ufffd"); strings.ReplaceAll(got, "\ufffd", "") != strings.ReplaceAll(want, "\ufffd", "") {
			t.Fatalf("%q became %q", in, got)
		}
	})
}

// Each kind of error has its form, and none that is transient is answered to a
// claim or a wait.
func TestEveryKindHasItsForm(t *testing.T) {
	want := map[incumbent.Kind]string{
		incumbent.Held: "leadership claim denied", incumbent.NotHolder: "leadership claim denied", incumbent.Denied: "unauthorized access",
		incumbent.Overloaded: "try again", incumbent.NotLeader: "try again", incumbent.Unavailable: "try again",
		incumbent.Conflict: "try again", incumbent.Compacted: "try again", incumbent.DeadlineExceeded: "deadline exceeded",
		incumbent.Invalid: "none", incumbent.NotFound: "none", incumbent.Exists: "none", incumbent.Expired: "none", incumbent.TooLarge: "none",
		incumbent.Unknown: "none", incumbent.Corrupt: "none", incumbent.Internal: "none",
	}
	for _, k := range incumbent.Kinds() {
		f := failureOf(&incumbent.Error{Kind: k, Message: "m"}, errClaimDenied)
		if f.code.String() != want[k] {
			t.Errorf("%v: code %q, want %q", k, f.code, want[k])
		}
		if transient := f.code == tryAgain || k == incumbent.DeadlineExceeded || k == incumbent.Unknown; transient != retried(k) {
			t.Errorf("%v: retried %v, code %q", k, retried(k), f.code)
		}
	}
	if got := failureOf(&incumbent.Error{Kind: incumbent.Unknown}, nil).message; got != "lease operation timed out" {
		t.Errorf("an unknown outcome is told as %q", got)
	}
}
