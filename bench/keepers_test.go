package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lookAtKeeper checks whether a keeper has begun, goes on and still holds, or with what fault
// not.
func lookAtKeeper(t *testing.T, k *keeper, err error, begins bool, fault string) {
	t.Helper()
	if (err == nil) != begins {
		t.Fatal(err)
	}
	if err != nil {
		return
	}
	defer k.close()
	if err = k.keep(); err == nil {
		err = k.holds()
	}
	if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) {
		t.Errorf("%v, want %q", err, fault)
	}
}

// A client beside a flood that is refused, or whose lock another has got, is told of.
func TestConsulKeepers(t *testing.T) {
	for name, c := range map[string]struct {
		acquired, renewed int    // what is answered: a status
		holder            string // of the key
		begins            bool
		fault             string
	}{
		"all is well":       {http.StatusOK, http.StatusOK, "s", true, ""},
		"another has it":    {http.StatusOK, http.StatusOK, "other", true, "is locked by"},
		"no room to renew":  {http.StatusOK, http.StatusTooManyRequests, "s", true, "429"},
		"the session ended": {http.StatusOK, http.StatusNotFound, "s", true, "404"},
		"it never began":    {http.StatusInternalServerError, http.StatusOK, "s", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("PUT /v1/session/create", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"ID":"s"}`) })
			mux.HandleFunc("PUT /v1/kv/kept/7", func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.acquired)
				fmt.Fprint(w, r.URL.Query().Get("acquire") == "s")
			})
			mux.HandleFunc("GET /v1/kv/kept/7", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `[{"Session":%q}]`, c.holder) })
			mux.HandleFunc("PUT /v1/session/renew/s", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.renewed) })
			srv := httptest.NewServer(mux)
			t.Cleanup(srv.Close)
			k, err := openConsulKeeper(newRun(&Scenario{}, Options{}), strings.TrimPrefix(srv.URL, "http://"), 7)
			lookAtKeeper(t, k, err, c.begins, c.fault)
		})
	}
}

// So is one whose lock is stolen over the protocol of Open vSwitch's databases.
func TestOVSDBKeepers(t *testing.T) {
	for name, c := range map[string]struct {
		locked, echo, assert string // what is answered
		begins               bool
		fault                string
	}{
		"all is well":       {`{"locked":true}`, `{"id":%d,"result":[],"error":null}`, `[{}]`, true, ""},
		"another has it":    {`{"locked":false}`, ``, ``, false, ""},
		"it is stolen":      {`{"locked":true}`, `{"id":null,"method":"stolen","params":["kept7"]}`, `[{}]`, true, "answered"},
		"it has it no more": {`{"locked":true}`, `{"id":%d,"result":[],"error":null}`, `[{"error":"not owner"}]`, true, "not owner"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				for in := json.NewDecoder(bufio.NewReader(conn)); ; {
					var m struct {
						ID     int
						Method string
					}
					if in.Decode(&m) != nil {
						return
					}
					switch m.Method {
					case "lock":
						fmt.Fprintf(conn, `{"id":%d,"result":%s,"error":null}`, m.ID, c.locked)
					case "echo":
						fmt.Fprint(conn, strings.ReplaceAll(c.echo, "%d", fmt.Sprint(m.ID)))
					case "transact":
						fmt.Fprintf(conn, `{"id":%d,"result":%s,"error":null}`, m.ID, c.assert)
					}
				}
			}()
			k, err := openOVSDBKeeper(newRun(&Scenario{}, Options{}), l.Addr().String(), 7)
			lookAtKeeper(t, k, err, c.begins, c.fault)
		})
	}
}

// Each goes on every second until it fails or is judged; what it waits for beyond its turn
// is counted, and one that is not answered at all is broken off.
func TestKeepersGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration // the answer; < 0: it never comes
		fails bool
		kept  int
		text  string
	}{
		"at once":   {0, false, 10, ""},
		"slow":      {4 * time.Second, false, 2, "at p99"},
		"refused":   {0, true, 1, "failed beside a flood"},
		"no answer": {-1, false, 1, "failed beside a flood"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRun(&Scenario{}, Options{})
				r.begun = time.Now()
				ctx, stop := context.WithCancel(t.Context())
				k := &kept{run: r, stop: stop}
				closed, n := make(chan struct{}), atomic.Int64{}
				one := &keeper{op: "keep", close: func() { close(closed) }, holds: func() error { return nil }, keep: func() error {
					n.Add(1)
					if c.takes < 0 {
						<-closed
						return context.DeadlineExceeded
					}
					time.Sleep(c.takes)
					if c.fails {
						return context.Canceled
					}
					return nil
				}}
				k.all = []*keeper{one}
				k.running.Go(func() { k.goOn(ctx, one) })
				time.Sleep(10*keeperEvery - time.Millisecond)
				kept := int(n.Load())
				if c.takes < 0 {
					time.Sleep(floodPatience)
				}
				k.judge()
				if text := violationsOf(r); (text == "") != (c.text == "") || !strings.Contains(text, c.text) {
					t.Errorf("%q, want %q", text, c.text)
				}
				if kept != c.kept && !(c.takes > 0 && kept == c.kept+1) {
					t.Errorf("kept %d times in ten seconds, want %d", kept, c.kept)
				}
			})
		})
	}
}
