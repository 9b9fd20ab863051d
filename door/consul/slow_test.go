package consul

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// Who asks for nothing that a lane admits, as fast as it can, is read later; nobody else is.
func TestG47_WhatAsksForNothingIsReadSlowly(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	ask := func(c *client, method, path string, want int) {
		t.Helper()
		c.write(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
		if a := c.read(method); a.StatusCode != want {
			t.Fatalf("%s: %s", path, a.Status)
		}
	}
	const n = 160
	other := m.dial()
	for range n {
		ask(other, "PUT", "/v1/kv/key", http.StatusOK)
	}
	if got := lanes.Slowed(); got != 0 {
		t.Fatalf("%d times somebody was to wait who asks for what there is", got)
	}
	c, began := m.dial(), time.Now()
	for range n {
		ask(c, "GET", "/v1/nothing", http.StatusNotFound)
	}
	const least = time.Duration((n-1)*admit.MessageBytes-64<<10) * time.Second / (16 << 10)
	if took := time.Since(began); took < least {
		t.Errorf("%d were answered within %v, which are to take %v", n, took, least)
	}
	// What comes in one piece is read one after the other, too.
	for range 3 {
		c.write("GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	for range 3 {
		c.read("GET")
	}
	if lanes.Slowed() == 0 {
		t.Error("nobody is said to have waited")
	}
}

// What no cluster of ours has, and what cannot be read, is as much as nothing.
func TestG47_WhatIsNotHereIsReadSlowly(t *testing.T) {
	for path, status := range map[string]int{
		"GET /v1/acl/tokens":                http.StatusUnauthorized,
		"PUT /v1/acl/policy":                http.StatusUnauthorized,
		"GET /v1/kv/key?dc=elsewhere":       http.StatusInternalServerError,
		"GET /v1/kv/key?raw;stale":          http.StatusInternalServerError,
		"GET /v1/status/peers?dc=elsewhere": http.StatusInternalServerError,
	} {
		lanes, err := admit.New(admit.Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := startMember(t, func(c *Config) { c.Admission = lanes })
		c := m.dial()
		method, _, _ := strings.Cut(path, " ")
		for n := 0; lanes.Slowed() == 0; n++ {
			if n*admit.MessageBytes > 128<<10 {
				t.Errorf("%s: nobody waits after %d", path, n)
				break
			}
			c.write(path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
			if a := c.read(method); a.StatusCode != status {
				t.Fatalf("%s: %s", path, a.Status)
			}
		}
	}
}

// What comes while the connection rests is served afterwards, however much it is.
func TestWhatComesWhileNothingIsServedIsNotRefused(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("without epoll who sends more than 1 MiB is cut off")
	}
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	c := m.dial()
	txn := func(body string) string {
		return head("PUT", "/v1/txn", fmt.Sprintf("Content-Length: %d\r\n", len(body))) + body
	}
	c.write(txn(`[{"Other":"` + strings.Repeat("x", 200<<10) + `"}]`))
	if a := c.read("PUT"); a.StatusCode != http.StatusBadRequest {
		t.Fatalf("what is none: %s", a.Status)
	}
	const n = 4 // which together have 1.6 MiB
	value := base64.StdEncoding.EncodeToString(make([]byte, 300<<10))
	go func() {
		for range n {
			_, _ = io.WriteString(c.conn, txn(`[{"KV":{"Verb":"set","Key":"k","Value":"`+value+`"}}]`)) // it is read below, or not
		}
	}()
	for range n {
		if a := c.read("PUT"); a.StatusCode != http.StatusOK {
			t.Errorf("behind it: %s, %.200s", a.Status, a.body)
		}
	}
}
