package bench

import (
	"context"
	"encoding/pem"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/client"
)

// fakeKeys keeps keys. Its switches make it lie.
type fakeKeys struct {
	incumbentv1connect.UnimplementedKeyValueServiceHandler
	incumbentv1connect.UnimplementedTransactionServiceHandler
	sameIndex  bool   // every change has the same index
	forgets    bool   // reads find nothing
	refuses    bool   // every call fails
	overloaded bool   // every third put is to be tried again later
	secret     string // that callers must know; empty: none

	mu      sync.Mutex // held for one call
	calls   int
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
	handle("/v1/stream", http.HandlerFunc(f.stream))
	return mux
}

// stream answers requests about keys as the calls do.
func (f *fakeKeys) stream(w http.ResponseWriter, r *http.Request) {
	conn, rw, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		m, err := readMessage(rw)
		if err != nil {
			return
		}
		out := &apiv1.ServerMessage{}
		for _, in := range m.Frames {
			a := &apiv1.ServerFrame{}
			if err := f.serve(r.Context(), in, a); err != nil {
				a = &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Conflict.String(), Message: err.Error()}}
				var call *connect.Error
				if errors.As(err, &call) && call.Code() == connect.CodeResourceExhausted {
					a.Error = &apiv1.Error{Kind: incumbent.Overloaded.String(), RetryAfterMs: 1}
				}
			}
			a.Id = in.Id
			out.Frames = append(out.Frames, a)
		}
		b, err := proto.Marshal(out)
		if err != nil || ws.WriteFrame(conn, ws.NewBinaryFrame(b)) != nil {
			return
		}
	}
}

func (f *fakeKeys) serve(ctx context.Context, in *apiv1.ClientFrame, a *apiv1.ServerFrame) error {
	switch q := in.Request.(type) {
	case *apiv1.ClientFrame_Put:
		res, err := f.Put(ctx, connect.NewRequest(q.Put))
		if err == nil {
			a.Answer = &apiv1.ServerFrame_Put{Put: res.Msg}
		}
		return err
	case *apiv1.ClientFrame_GetKey:
		res, err := f.Get(ctx, connect.NewRequest(q.GetKey))
		if err == nil {
			a.Answer = &apiv1.ServerFrame_GetKey{GetKey: res.Msg}
		}
		return err
	case *apiv1.ClientFrame_Txn:
		res, err := f.Txn(ctx, connect.NewRequest(q.Txn))
		if err == nil {
			a.Answer = &apiv1.ServerFrame_Txn{Txn: res.Msg}
		}
		return err
	}
	return errors.New("unknown")
}

// overloadedAnswer is a refusal as our servers write it.
func overloadedAnswer() error {
	err := connect.NewError(connect.CodeResourceExhausted, errors.New("later"))
	detail, _ := connect.NewErrorDetail(&apiv1.Error{Kind: incumbent.Overloaded.String(), Message: "later", RetryAfterMs: 1})
	err.AddDetail(detail)
	return err
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
	if f.calls++; f.overloaded && f.calls%3 == 0 {
		return nil, overloadedAnswer()
	}
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
		{"overload", "kv-put", &fakeKeys{overloaded: true}, ""},
		{"only refusals", "kv-put", &fakeKeys{refuses: true}, "are errors"},
	} {
		for way, set := range map[string]func(map[string]string){
			"streams": func(map[string]string) {},
			"shared":  func(set map[string]string) { set["closed.streams"] = "2" },
			"calls":   func(set map[string]string) { set["closed.calls"] = "true" },
		} {
			t.Run(c.name+" by "+way, func(t *testing.T) {
				t.Parallel()
				settings := closedSettings()
				set(settings)
				server := &fakeKeys{sameIndex: c.server.sameIndex, forgets: c.server.forgets, refuses: c.server.refuses, overloaded: c.server.overloaded}
				s, err := Run(t.Context(), Options{Scenario: c.scenario, Set: settings, Targets: []string{server.start(t)}})
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Join(s.Texts, "\n")
				if s.Passed() != (c.text == "") || !strings.Contains(text, c.text) {
					t.Errorf("passed %v, want a violation %q: %s", s.Passed(), c.text, text)
				}
				if away := s.Ops[turnedAway].Count; (away > 0) != c.server.overloaded {
					t.Errorf("%d calls were turned away", away)
				}
				for name, o := range s.Ops {
					if c.text == "" && (o.Count == 0 || o.Errors != 0 || o.P50 <= 0 || o.P50 > o.Max) {
						t.Errorf("%s: %+v", name, o)
					}
				}
			})
		}
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
