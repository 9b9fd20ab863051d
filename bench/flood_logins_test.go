package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

// Who tries to log in with what is wrong is told so, is turned away, or was let in, which
// is a violation.
func TestWrongCredentials(t *testing.T) {
	juju := func(fake *fakeJuju) *flood {
		return &flood{run: newRun(&Scenario{}, Options{JujuPassword: "right"}), doors: map[int]string{0: fake.open(t).address}, model: "m"}
	}
	consul := func(status int) *flood {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Consul-Token") == "" {
				t.Error("no token is brought")
			}
			w.WriteHeader(status)
		}))
		t.Cleanup(srv.Close)
		return &flood{run: newRun(&Scenario{}, Options{}), doors: map[int]string{0: strings.TrimPrefix(srv.URL, "http://")}}
	}
	for name, c := range map[string]struct {
		f    *flood
		try  opener
		kind incumbent.Kind
		text string
	}{
		"juju, denied":      {f: juju(&fakeJuju{password: "right"}), try: guessJuju},
		"juju, let in":      {f: juju(&fakeJuju{}), try: guessJuju, text: "a wrong password was taken"},
		"juju, later":       {f: juju(&fakeJuju{login: jujuTryAgain}), try: guessJuju, kind: incumbent.Overloaded},
		"juju, turned away": {f: juju(&fakeJuju{shed: 9}), try: guessJuju, kind: incumbent.Overloaded},
		"consul, denied":    {f: consul(http.StatusForbidden), try: guessConsul},
		"consul, nobody":    {f: consul(http.StatusNotFound), try: guessConsul},
		"consul, later":     {f: consul(http.StatusTooManyRequests), try: guessConsul, kind: incumbent.Overloaded},
		"consul, let in":    {f: consul(http.StatusOK), try: guessConsul, text: "a token that is nobody's"},
		"ovsdb, closed":     {f: &flood{run: newRun(&Scenario{}, Options{}), doors: map[int]string{0: sayOnce(t, "")}}, try: knockOVSDB, kind: incumbent.Overloaded},
		"ovsdb, monitored":  {f: &flood{run: newRun(&Scenario{}, Options{}), doors: map[int]string{0: sayOnce(t, `{"id":1,"result":{},"error":null}`)}}, try: knockOVSDB},
	} {
		client, err := attempts(c.try)(t.Context(), c.f, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		done, err := client.ask(t.Context(), 0)
		if incumbent.KindOf(err) != c.kind || (done == 1) != (c.kind == incumbent.OK) {
			t.Errorf("%s: %d done, %v", name, done, err)
		}
		if text := violationsOf(c.f.run); (text == "") != (c.text == "") || !strings.Contains(text, c.text) {
			t.Errorf("%s: %q", name, text)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := notLetIn(ended, context.Canceled); incumbent.KindOf(err) == incumbent.Overloaded {
		t.Error("an attempt without an answer counts as a refusal")
	}
}
