package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func TestAsErrorKeepsWhatTheServerSaid(t *testing.T) {
	for _, k := range incumbent.Kinds() {
		call := connect.NewError(connect.CodeInternal, errors.New("x"))
		detail, err := connect.NewErrorDetail(&apiv1.Error{
			Kind: k.String(), Message: "m", Hint: "h", RetryAfterMs: 1500, Member: "n1", Leader: "n2",
		})
		if err != nil {
			t.Fatal(err)
		}
		call.AddDetail(detail)
		var got *incumbent.Error
		if !errors.As(AsError(call), &got) {
			t.Fatalf("%v: %v", k, AsError(call))
		}
		want := incumbent.Error{Kind: k, Message: "m", Hint: "h", RetryAfter: 1500 * time.Millisecond, Member: "n1", Leader: "n2"}
		if *got != want {
			t.Errorf("%v: got %+v", k, *got)
		}
	}
	if got := incumbent.KindOf(DetailError(&apiv1.Error{Kind: "brand_new"})); got != incumbent.Unknown {
		t.Errorf("a kind of a newer server: %v", got)
	}
	if AsError(nil) != nil || DetailError(nil) != nil {
		t.Error("nil is an error")
	}
	other := errors.New("other")
	if AsError(other) != other {
		t.Error("another error was changed")
	}
}

func TestAsErrorOfTheTransport(t *testing.T) {
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		want := incumbent.Unknown
		switch code {
		case connect.CodeDeadlineExceeded:
			want = incumbent.DeadlineExceeded
		case connect.CodePermissionDenied, connect.CodeUnauthenticated:
			want = incumbent.Denied
		case connect.CodeResourceExhausted:
			want = incumbent.TooLarge
		case connect.CodeUnimplemented:
			want = incumbent.Invalid
		}
		err := AsError(connect.NewError(code, errors.New("proxy")))
		if incumbent.KindOf(err) != want {
			t.Errorf("%v: %v, want %v", code, err, want)
		}
	}
	if err := AsError(connect.NewError(connect.CodeCanceled, context.Canceled)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	typed := incumbent.Errorf(incumbent.Unavailable, "no member answers")
	if err := AsError(connect.NewError(connect.CodeUnknown, typed)); !errors.Is(err, typed) {
		t.Errorf("the transport's own: %v", err)
	}
}

// What has been through it passes through, also where the end of a call is behind it, and is not
// looked into.
func TestAsErrorOfAsError(t *testing.T) {
	ended := connect.NewError(connect.CodeCanceled, context.Canceled)
	for name, once := range map[string]error{
		"an answer":         AsError(connect.NewError(connect.CodeUnavailable, errors.New("proxy"))),
		"an unknown one":    incumbent.Errorf(incumbent.Unknown, "no outcome in time: %w", ended),
		"one of ours in it": AsError(connect.NewError(connect.CodeUnavailable, notExecuted(ended))),
	} {
		if twice := AsError(once); twice != once {
			t.Errorf("%s: %v, and then %v", name, once, twice)
		}
	}
	if err := AsError(errors.Join(errors.New("first"), ended)); !errors.Is(err, context.Canceled) {
		t.Errorf("of two: %v", err)
	}
}

// What stands in front of servers, or in their place, answers in its own way.
func TestOthersAnswers(t *testing.T) {
	code := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	defer web.Close()
	c := clientOf(t, web.URL)
	for status, want := range map[int]incumbent.Kind{
		http.StatusNotFound: incumbent.Invalid, http.StatusForbidden: incumbent.Denied, http.StatusUnauthorized: incumbent.Denied,
		http.StatusBadGateway: incumbent.Unknown, http.StatusGatewayTimeout: incumbent.Unknown,
	} {
		code = status
		_, err := c.Leases().Claim(testContext(t), connect.NewRequest(&apiv1.ClaimRequest{}))
		if got := incumbent.KindOf(AsError(err)); got != want {
			t.Errorf("%d: %v, want %v", status, AsError(err), want)
		}
	}
	for status, want := range map[int]incumbent.Kind{
		http.StatusForbidden: incumbent.Denied, http.StatusServiceUnavailable: incumbent.Overloaded, http.StatusNotFound: incumbent.Invalid,
	} {
		code = status
		if _, _, err := c.DialStream(testContext(t), StreamOptions{}); incumbent.KindOf(err) != want {
			t.Errorf("a stream, %d: %v, want %v", status, err, want)
		}
	}
}

// A refused stream says what a refused call says, but to strangers not who refuses it.
func TestRefusedStreamSaysWhy(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := newClient(t, Config{Servers: []string{s.URL()}, Credential: "nobody's"})
	_, err := c.Open(testContext(t), SessionConfig{})
	var got *incumbent.Error
	if !errors.As(err, &got) || got.Kind != incumbent.Denied || got.Hint == "" || got.Member != "" {
		t.Errorf("got %+v", err)
	}
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no server":      {},
		"no URL":         {Servers: []string{"127.0.0.1:7600"}},
		"another scheme": {Servers: []string{"ftp://127.0.0.1"}},
		"no host":        {Servers: []string{"http:///x"}},
		"drift":          {Servers: []string{"http://a"}, Drift: 0.5},
		"negative drift": {Servers: []string{"http://a"}, Drift: -1},
		"no CA":          {Servers: []string{"http://a"}, CAFile: "/nowhere"},
		"no key":         {Servers: []string{"http://a"}, CertFile: "/nowhere"},
		"no certificate": {Servers: []string{"http://a"}, KeyFile: "/nowhere"},
	} {
		if _, err := New(cfg); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
	for name, cfg := range map[string]SessionConfig{"short": {TTL: 1}, "negative": {TTL: -time.Second}, "holder": {Holder: "a\nb"}} {
		if _, err := clientOf(t, "http://127.0.0.1:1").Open(testContext(t), cfg); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%s: %v, want Invalid", name, err)
		}
	}
}

// A request that cannot be encoded is the caller's fault: it never left.
func TestATextThatIsNoUTF8IsInvalid(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	c, err := New(Config{Servers: []string{s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.KV("").Put(t.Context(), "\xff", nil); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("put: %v", err)
	}
	if _, err := c.KV("").Get(t.Context(), "\xff"); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("get: %v", err)
	}
}
