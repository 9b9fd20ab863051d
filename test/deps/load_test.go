package deps

import (
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// platforms are the builds whose imports count. A file that is compiled on one
// of them only must keep the rules too.
var platforms = []struct {
	goos string
	tags []string
}{
	{"linux", nil},
	{"linux", []string{"invariants", "race"}},
	{"darwin", nil},
	{"windows", nil},
}

// load returns the packages of the module at root, sorted by folder, with what
// their non-test files import on any platform. Folders that belong to another
// module, and those the go command ignores, are left out.
func load(root string) ([]pkg, error) {
	var packages []pkg
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		if dir != root && ignored(dir, d.Name()) {
			return filepath.SkipDir
		}
		imports, err := importsOf(dir)
		if err != nil || imports == nil {
			return err
		}
		folder, err := filepath.Rel(root, dir)
		packages = append(packages, pkg{folder: filepath.ToSlash(folder), imports: imports})
		return err
	})
	return packages, err
}

func ignored(dir, name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "node_modules" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// importsOf returns nil if the folder holds no package on any platform.
func importsOf(dir string) ([]string, error) {
	var imports []string
	for _, p := range platforms {
		ctx := build.Default
		ctx.GOOS, ctx.BuildTags, ctx.CgoEnabled = p.goos, p.tags, false
		found, err := ctx.ImportDir(dir, 0)
		if noGo := (*build.NoGoError)(nil); errors.As(err, &noGo) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", dir, p.goos, err)
		}
		if imports == nil {
			imports = []string{}
		}
		imports = append(imports, found.Imports...)
	}
	if imports == nil {
		return nil, nil
	}
	slices.Sort(imports)
	return slices.Compact(imports), nil
}

// TestLoad reads a small module from disk: what is found decides what is checked.
func TestLoad(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":             "module " + module + "\n",
		"root.go":            "package incumbent\nimport _ \"fmt\"\n",
		"root_test.go":       "package incumbent\nimport _ \"os\"\n",
		"ignore.go":          "//go:build ignore\n\npackage main\nimport _ \"net\"\n",
		"wal/wal.go":         "package wal\nimport _ \"" + module + "/vfs\"\n",
		"wal/wal_darwin.go":  "package wal\nimport _ \"" + module + "/node\"\n",
		"wal/race.go":        "//go:build race\n\npackage wal\nimport _ \"sync\"\n",
		"wal/testdata/x.go":  "package x\nimport _ \"os\"\n",
		"tools/buf/go.mod":   "module elsewhere\n",
		"tools/buf/main.go":  "package main\nimport _ \"os\"\n",
		"test/only_test.go":  "package test\nimport _ \"os\"\n",
		".cache/x/hidden.go": "package hidden\n",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []pkg{
		{folder: ".", imports: []string{"fmt"}},
		{folder: "test", imports: []string{}},
		{folder: "wal", imports: []string{module + "/node", module + "/vfs", "sync"}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(pkg{})); diff != "" {
		t.Error(diff)
	}
	if got := check(got); len(got) != 1 {
		t.Errorf("violations %q, want the import of node by wal on darwin", got)
	}
}
