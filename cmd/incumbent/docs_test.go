package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The operator's page names every setting, with its default, and every metric.
func TestOperatingPageIsWhole(t *testing.T) {
	data, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	env, _ := testEnvironment(t, nil)
	parsed(t, env, "server").Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !strings.Contains(page, "`--"+f.Name+"`") {
			t.Errorf("no setting --%s", f.Name)
		}
		switch f.Value.Type() {
		case "duration", "float64":
			if !strings.Contains(page, "| `--"+f.Name+"` | `"+f.DefValue+"` |") {
				t.Errorf("the default of --%s is %s", f.Name, f.DefValue)
			}
		}
	})
	res, err := http.Get(openServer(t).URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		name, ok := strings.CutPrefix(line, "# TYPE incumbent_")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		n++
		if !strings.Contains(page, "`incumbent_"+name+"`") && !strings.Contains(page, "`incumbent_"+name+"{") {
			t.Errorf("no metric incumbent_%s", name)
		}
	}
	if n < 20 {
		t.Errorf("%d metrics, there were more", n)
	}
}

func TestOperatingPageNamesExitCodes(t *testing.T) {
	data, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{"| 0 |", "| 1 |", "| 2 |", "| 3 |", "| 4 |", "| 5 |", "| 6 |", "| 7 |", "| 99 |", " 122 ", " 123 ", " 124 ", " 125 ", " 126 ", " 127 "} {
		if !strings.Contains(string(data), code) {
			t.Errorf("no exit code %s", code)
		}
	}
}
