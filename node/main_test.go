package node

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// TestMain decides how often the property tests run: INCUMBENT_NODE_CHECKS, or
// -rapid.checks, or few enough for every day.
func TestMain(m *testing.M) {
	flag.Parse()
	checks := "25"
	if text := os.Getenv("INCUMBENT_NODE_CHECKS"); text != "" {
		if n, err := strconv.Atoi(text); err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "INCUMBENT_NODE_CHECKS: %q is no number of checks\n", text)
			os.Exit(2)
		}
		checks = text
		unwatched = true
	}
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", checks); err != nil {
			panic(err)
		}
	}
	m.Run()
}
