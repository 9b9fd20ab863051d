package lease

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What differs between toolchains or runs has no part in what apply decides:
// neither this package nor the words of the domain import it. The directory finds
// names by numbers that differ from run to run, as a map does, and compares the names.
func TestG28_ApplyAsksNoTables(t *testing.T) {
	banned := []string{"unicode", "math/rand", "math/rand/v2", "math/big", "math", "regexp", "os", "runtime", "sync", "hash/maphash"}
	for _, pattern := range []string{"*.go", "../*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				if path, _ := strconv.Unquote(i.Path.Value); slices.Contains(banned, path) && (name != "directory.go" || path != "hash/maphash") {
					t.Errorf("%s imports %s", name, path)
				}
			}
		}
	}
}
