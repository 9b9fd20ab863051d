package juju

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plainTexts are requests as Juju's client writes them.
var plainTexts = []string{
	claimText(1, "app", "app-0", "60"),
	claimText(999, "app", "app-0", "60") + "\n",
	blockText(7, "app"),
	`{"request-id":2,"type":"Pinger","version":1,"request":"Ping","params":{}}`,
	`{"request-id":3,"type":"Pinger","version":1,"id":"x","request":"Ping","params":{}}`,
	`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":"unit-app-0","credentials":"ü\n"}}`,
}

// TestPlainIsWhatClientsWrite: their requests do not go the long way.
func TestPlainIsWhatClientsWrite(t *testing.T) {
	for _, text := range plainTexts {
		if _, ok := plainRequest([]byte(text)); !ok {
			t.Errorf("%q is left to encoding/json", text)
		}
	}
	for _, text := range []string{
		`{"request-id":1,"type":"a","request":"b","params":{},"params":{}}`,
		`{"request-id":1,"type":"a","request":"b","params":{},"id":{}}`,
		`{"request-id":1,"type":"\u0061","request":"b","params":{}}`,
		`{"request-id":01,"type":"a","request":"b","params":{}}`,
		`{"request-id":1,"type":"a","request":"b","params":{"a":}}`,
	} {
		if r, ok := plainRequest([]byte(text)); ok {
			t.Errorf("%q is read the short way: %+v", text, r)
		}
	}
	r, _ := plainRequest([]byte(plainTexts[0]))
	want := claimParam{Application: "application-app", Unit: "unit-app-0", Duration: 60}
	if got, ok := plainClaim(r.Params); !ok || got != want {
		t.Errorf("%s is %+v", r.Params, got)
	}
}

// TestPlainVersion: a version that no int of 32 bits may hold is left to
// encoding/json, which refuses it where it does not fit.
func TestPlainVersion(t *testing.T) {
	for version, want := range map[string]bool{"0": false, "2": true, "999999999": true, "4294967298": false, "1000000000": false} {
		r, ok := plainRequest([]byte(`{"request-id":1,"type":"Pinger","version":` + version + `,"request":"Ping","params":{}}`))
		if ok != want || ok && strconv.FormatInt(int64(r.Version), 10) != version {
			t.Errorf("version %s: %d, %v", version, r.Version, ok)
		}
	}
}

// FuzzPlain: what is read the short way is what encoding/json reads.
func FuzzPlain(f *testing.F) {
	for _, text := range plainTexts {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"request-id":1,"type":"a\"","request":"b","params":{"params":[]},"params":{}}`))
	f.Add([]byte(`{"request-id":01,"type":"","request":"","params":{}}`))
	f.Add([]byte(`{"params":[{"application-tag":"","unit-tag":"","duration":999999999999999}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if got, ok := plainRequest(in); ok {
			var want request
			if err := json.Unmarshal(in, &want); err != nil {
				t.Fatalf("%q: %v", in, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("%q: %s", in, d)
			}
			in = got.Params
		}
		if got, ok := plainClaim(in); ok {
			var want claimParams
			if err := json.Unmarshal(in, &want); err != nil {
				t.Fatalf("%q: %v", in, err)
			}
			if d := cmp.Diff(want, claimParams{[]claimParam{got}}); d != "" {
				t.Fatalf("%q: %s", in, d)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for name, text := range map[string]string{"as the client writes it": plainTexts[0], "in another order": swapped} {
		b.Run(name, func(b *testing.B) {
			in := []byte(text)
			b.ReportAllocs()
			for b.Loop() {
				r, ok := decodeRequest(in)
				if _, f := decodeClaim(&r); !ok || f != nil {
					b.Fatal("not read")
				}
			}
		})
	}
}

// swapped is a claim whose keys stand in another order.
const swapped = `{"type":"LeadershipService","request-id":1,"version":2,"request":"ClaimLeadership",` +
	`"params":{"params":[{"unit-tag":"unit-app-0","application-tag":"application-app","duration":60}]}}`
