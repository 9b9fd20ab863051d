package incumbent_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range append(incumbent.Kinds(), incumbent.OK) {
		name := k.String()
		if back, ok := incumbent.ParseKind(name); !ok || back != k || seen[name] {
			t.Errorf("kind %d is %q, which is %v", k, name, back)
		}
		seen[name] = true
	}
	if len(seen) != 18 {
		t.Errorf("%d kinds: they are written into logs and may only grow", len(seen))
	}
	if k, ok := incumbent.ParseKind("nonsense"); ok || k != incumbent.Internal {
		t.Errorf("nonsense is %v, %v", k, ok)
	}
	if incumbent.Unknown.Transient() {
		t.Error("an unknown outcome must not be repeated blindly")
	}
}

func TestErrorWraps(t *testing.T) {
	err := incumbent.Errorf(incumbent.Unavailable, "read: %w", io.ErrUnexpectedEOF)
	wrapped := fmt.Errorf("outer: %w", err.WithHint("try"))
	if !errors.Is(wrapped, io.ErrUnexpectedEOF) || incumbent.KindOf(wrapped) != incumbent.Unavailable {
		t.Errorf("%v lost its cause or kind", wrapped)
	}
	if !errors.Is(wrapped, &incumbent.Error{Kind: incumbent.Unavailable}) || errors.Is(wrapped, &incumbent.Error{Kind: incumbent.Held}) {
		t.Error("an error is matched by its kind")
	}
	if err.Hint != "" {
		t.Error("a hint changed the original")
	}
	if got := err.Error(); got != "unavailable: read: unexpected EOF" {
		t.Errorf("it reads %q", got)
	}
	if incumbent.KindOf(nil) != incumbent.OK || incumbent.KindOf(io.EOF) != incumbent.Internal {
		t.Error("nil is OK, what is not ours is internal")
	}
}
