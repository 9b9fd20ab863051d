package native

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
)

// The page shows each kind as it goes out.
func TestThePageShowsEveryKind(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocols/native.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range incumbent.Kinds() {
		code := codeOf(k)
		row := fmt.Sprintf("| `%v` | `%v` (%d) | %d |", k, code, code, statusOf(k))
		if !strings.Contains(string(page), row) {
			t.Errorf("the page does not say %q", row)
		}
		if k != incumbent.Invalid && code == codeOf(incumbent.Invalid) {
			t.Errorf("%v has the code of a malformed request", k)
		}
		if status := statusOf(k); status == 400 && k != incumbent.Invalid && k != incumbent.Compacted {
			t.Errorf("%v has the status of a malformed request", k)
		}
	}
}
