package settings

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page that operators read has what is declared, no more and no less. It is
// written by: UPDATE_DOCS=1 go test ./core/settings -run TestDocsShowWhatIsDeclared
func TestDocsShowWhatIsDeclared(t *testing.T) {
	const file, begin, end = "../../docs/settings.md", "<!-- settings begin -->\n", "<!-- settings end -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), begin)
	_, tail, more := strings.Cut(rest, end)
	if !ok || !more {
		t.Fatalf("%s has no place for the table", file)
	}
	var b strings.Builder
	b.WriteString("| setting | default | may be | what it does |\n|---|---|---|---|\n")
	for _, d := range All() {
		name := "`" + d.Name + "`"
		if d.For != Nobody {
			name += " (`@` a " + d.For.String() + ")"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, d.Format(d.Default), d.Bounds(), d.Does)
	}
	want := head + begin + b.String() + end + tail
	if os.Getenv("UPDATE_DOCS") != "" {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want != string(page) && os.Getenv("UPDATE_DOCS") == "" {
		t.Errorf("%s does not show what is declared", file)
	}
}
