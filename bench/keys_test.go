package bench

import (
	"context"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/client"
)

// fakeKeys keeps keys. Its switches make it lie.
type fakeKeys struct {
	incumbentv1connect.UnimplementedKeyValueServiceHandler
	incumbentv1connect.UnimplementedTransactionServiceHandler
	sameIndex bool   // every change has the same index
	forgets   bool   // reads find nothing
	refuses   bool   // every call fails
	secret    string // that callers must know; empty: none

	mu      sync.Mutex // held for one call
	index   uint64
	entries map[string]*apiv1.KeyValue
}

func (f *fakeKeys) handler() http.Handler {
	f.entries = map[string]*apiv1.KeyValue{}
	mux := http.NewServeMux()
	handle := func(path string, h http.Handler) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if f.secret != "" && r.Header.Get("Authorization") != "Bearer "+f.secret {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	handle(incumbentv1connect.NewKeyValueServiceHandler(f))
	handle(incumbentv1connect.NewTransactionServiceHandler(f))
	return mux
}

func (f *fakeKeys) start(t *testing.T) string {
	srv := httptest.NewServer(f.handler())
	t.Cleanup(srv.Close)
	return srv.URL
}

func (f *fakeKeys) Put(_ context.Context, req *connect.Request[apiv1.PutRequest]) (*connect.Response[apiv1.PutResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, conditional := req.Msg.Condition.(*apiv1.PutRequest_IfIndex)
	if f.refuses || conditional && f.entries[req.Msg.Key] != nil {
		return nil, connect.NewError(connect.CodeAborted, incumbent.Errorf(incumbent.Conflict, "it is there"))
	}
	if f.index == 0 || !f.sameIndex {
		f.index++
	}
	e := &apiv1.KeyValue{Key: req.Msg.Key, Value: req.Msg.Value, ModifiedIndex: f.index}
	f.entries[e.Key] = e
	return connect.NewResponse(&apiv1.PutResponse{Index: f.index, Entry: e}), nil
}

func (f *fakeKeys) Txn(_ context.Context, req *connect.Request[apiv1.TxnRequest]) (*connect.Response[apiv1.TxnResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, is := range req.Msg.Conditions {
		if at := is.GetKey().GetModifiedIndex(); f.entries[is.GetKey().GetKey()].GetModifiedIndex() != at {
			return connect.NewResponse(&apiv1.TxnResponse{Unmet: uint32(i + 1), Index: f.index}), nil
		}
	}
	if f.index == 0 || !f.sameIndex {
		f.index++
	}
	res := &apiv1.TxnResponse{Succeeded: true, Index: f.index}
	for _, op := range req.Msg.Then {
		if put := op.GetPut(); !f.forgets {
			f.entries[put.Key] = &apiv1.KeyValue{Key: put.Key, Value: put.Value, ModifiedIndex: f.index}
		}
		res.Results = append(res.Results, &apiv1.TxnResult{Result: &apiv1.TxnResult_Put{Put: &apiv1.PutResponse{}}})
	}
	return connect.NewResponse(res), nil
}

func (f *fakeKeys) Get(_ context.Context, req *connect.Request[apiv1.GetKeyRequest]) (*connect.Response[apiv1.GetKeyResponse], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.forgets {
		return connect.NewResponse(&apiv1.GetKeyResponse{}), nil
	}
	return connect.NewResponse(&apiv1.GetKeyResponse{Entry: f.entries[req.Msg.Key], Index: f.index}), nil
}

func TestKeyRuns(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenario string
		server   *fakeKeys
		text     string // of a violation; empty: none
	}{
		{"put", "kv-put", &fakeKeys{}, ""},
		{"get", "kv-get", &fakeKeys{}, ""},
		{"stale get", "kv-get-stale", &fakeKeys{}, ""},
		{"create", "kv-create", &fakeKeys{}, ""},
		{"an index that stays", "kv-put", &fakeKeys{sameIndex: true}, "a change of index 1 after one of index 1"},
		{"nothing read", "kv-get", &fakeKeys{forgets: true}, "read 0 bytes that nobody put"},
		{"transactions", "txn-16", &fakeKeys{}, ""},
		{"guarded transactions", "txn-guarded-16", &fakeKeys{}, ""},
		{"transactions that forget", "txn-guarded-1", &fakeKeys{forgets: true}, "condition 1 does not hold"},
		{"transactions of one index", "txn-1", &fakeKeys{sameIndex: true}, "a transaction of index 1 after one of index 1"},
		{"only refusals", "kv-put", &fakeKeys{refuses: true}, "are errors"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := Run(t.Context(), Options{Scenario: c.scenario, Set: closedSettings(), Targets: []string{c.server.start(t)}})
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(s.Texts, "\n")
			if s.Passed() != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("passed %v, want a violation %q: %s", s.Passed(), c.text, text)
			}
			for name, o := range s.Ops {
				if c.text == "" && (o.Count == 0 || o.Errors != 0 || o.P50 <= 0 || o.P50 > o.Max) {
					t.Errorf("%s: %+v", name, o)
				}
			}
		})
	}
}

// Over TLS, with a credential, and below a path as behind a proxy.
func TestKeysOverTLS(t *testing.T) {
	f := &fakeKeys{secret: "swordfish"}
	srv := httptest.NewTLSServer(http.StripPrefix("/below", f.handler()))
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := Options{Scenario: "kv-put", Set: closedSettings(), Targets: []string{srv.URL + "/below"}, Client: client.Config{CAFile: ca, Credential: f.secret}}
	s, err := Run(t.Context(), opts)
	if err != nil || !s.Passed() || s.Ops["put"].Count == 0 {
		t.Errorf("%v, %+v", err, s)
	}
	opts.Client.Credential = "guess"
	if s, err := Run(t.Context(), opts); err == nil && s.Passed() {
		t.Error("passed with a credential that is wrong")
	}
}

func TestRefusalsOfKeyScenarios(t *testing.T) {
	for name, cases := range map[string]map[string]string{
		"kv-put":    {"closed.batch": "2", "closed.rate": "5", "closed.value_bytes": "7", "closed.beside": "{operations: 1, value_bytes: 8, every: 1s}"},
		"txn-large": {"closed.beside.operations": "10001", "closed.beside.value_bytes": "7", "closed.beside.every": "0s"},
	} {
		for key, value := range cases {
			set := map[string]string{key: value}
			if _, err := Load(name, set); incumbent.KindOf(err) != incumbent.Invalid {
				t.Errorf("%s with %v: %v", name, set, err)
			}
			ok := maps.Clone(set)
			delete(ok, key)
			if _, err := Load(name, ok); err != nil {
				t.Error(err)
			}
		}
	}
}
