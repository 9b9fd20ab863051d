package mutants

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	moduleRoot  = "../.."
	smokeCount  = 2    // mutants of a run that does not ask for all
	defaultSeed = 1    // of which two, so that every run is the same
	rules       = 38   // of the table in sim/README.md
	testTimeout = "3m" // of one test with one mutant; to hang is to be noticed, too
)

// fixedDraws tells tests that draw what they try, by package rapid or by seeds of
// the simulator, what to draw: a mutant is noticed in every run or in none. What is found need not be
// made small.
var fixedDraws = []string{"INCUMBENT_SIM_SEEDS=30", "RAPID_SEED=1", "RAPID_NOFAILFILE=true", "RAPID_SHRINKTIME=1s"}

// TestG50_EveryMutantIsNoticed runs the chosen mutants.
func TestG50_EveryMutantIsNoticed(t *testing.T) {
	chosen := choose(t)
	root := copyModule(t)
	sound := baseline{root: root, binaries: map[string]string{}, passed: map[string]bool{}}
	for _, m := range chosen {
		t.Run(m.guarantee+" "+m.name, func(t *testing.T) {
			sound.mustPass(t, m)
			restore := m.apply(t, root)
			defer restore()
			m.mustFail(t, root)
		})
	}
}

// TestEveryMutantIsAimed checks all of the list without running it: the place
// is there once, and the test exists. So a change that moves either is noticed
// at once, and not when the whole list is run.
func TestEveryMutantIsAimed(t *testing.T) {
	seen, tests := map[string]bool{}, map[string]string{}
	for _, m := range mutants {
		if seen[m.name] || m.guarantee == "" {
			t.Errorf("%q: there twice, or without a guarantee", m.name)
		}
		seen[m.name] = true
		source, err := os.ReadFile(filepath.Join(moduleRoot, m.file))
		if err != nil {
			t.Errorf("%q: %v", m.name, err)
			continue
		}
		if n := strings.Count(string(source), m.search); n != 1 {
			t.Errorf("%q is stale: its place is in %s %d times, want once", m.name, m.file, n)
		}
		if m.search == m.replace {
			t.Errorf("%q changes nothing", m.name)
		}
		if tests[m.pkg] == "" {
			tests[m.pkg] = testsIn(t, m.pkg)
		}
		m.findTest(t, tests[m.pkg])
	}
}

// TestEveryRuleHasAMutant checks the table of the rules that keep leases safe:
// each of its rows names mutants, and these are there.
func TestEveryRuleHasAMutant(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(moduleRoot, "sim", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range mutants {
		known[m.name] = true
	}
	_, table, _ := strings.Cut(string(page), "| | rule | mutants | checks |\n")
	rows := regexp.MustCompile(`(?m)^\| (\d+) \|.*$`).FindAllStringSubmatch(table, -1)
	if len(rows) != rules {
		t.Errorf("%d rows, want one for each of %d rules", len(rows), rules)
	}
	for _, row := range rows {
		names := regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(row[0], -1)
		if len(names) == 0 {
			t.Errorf("rule %s has no mutant", row[1])
		}
		for _, name := range names {
			if !known[name[1]] {
				t.Errorf("rule %s names the mutant %q, which is not there", row[1], name[1])
			}
		}
	}
}

// testsIn returns the sources of a package's tests.
func testsIn(t *testing.T, pkg string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(moduleRoot, pkg, "*_test.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tests in %s: %v", pkg, err)
	}
	var all strings.Builder
	for _, name := range names {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(source)
	}
	return all.String()
}

// findTest checks that the mutant's test is there, and only that one: what is
// named in front of the first slash. Below it are files and members of tables.
func (m mutant) findTest(t *testing.T, sources string) {
	t.Helper()
	name, _, _ := strings.Cut(m.test, "/")
	if !strings.HasPrefix(name, "^") || !strings.HasSuffix(name, "$") {
		t.Errorf("%q: %s may be any of several tests", m.name, m.test)
	}
	matches, err := regexp.Compile(name)
	if err != nil {
		t.Fatalf("%q: %v", m.name, err)
	}
	for _, test := range testName.FindAllStringSubmatch(sources, -1) {
		if matches.MatchString(test[1]) {
			return
		}
	}
	t.Errorf("%q is stale: %s has no test %s", m.name, m.pkg, m.test)
}

// testName finds tests in a source.
var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// choose returns all mutants or, by seed, a few.
func choose(t *testing.T) []mutant {
	t.Helper()
	if os.Getenv("INCUMBENT_MUTANTS") == "1" {
		return mutants
	}
	seed := uint64(defaultSeed)
	if text := os.Getenv("INCUMBENT_MUTANT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("INCUMBENT_MUTANT_SEED: %v", err)
		}
	}
	t.Logf("INCUMBENT_MUTANT_SEED=%d", seed)
	var chosen []mutant
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(mutants))[:smokeCount] {
		chosen = append(chosen, mutants[i])
	}
	return chosen
}

// copyModule copies what the tests of the module's packages need: they may
// write beside their sources when they fail.
func copyModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	from, err := filepath.Abs(moduleRoot)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since the folder was read
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(root, rel)
		switch {
		case d.IsDir() && skipped(rel):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		return copyFile(to, path)
	})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// skipped are folders that no test of a package needs.
func skipped(rel string) bool {
	switch rel {
	case ".git", "bin", "docs", "tools", filepath.Join("test", "peers"):
		return true
	}
	return strings.HasSuffix(rel, ".data")
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// apply puts the mutant into the copy.
func (m mutant) apply(t *testing.T, root string) (restore func()) {
	t.Helper()
	path := filepath.Join(root, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte(m.search)); n != 1 {
		t.Fatalf("the mutant is stale: its place is in %s %d times, want once", m.file, n)
	}
	mutated := bytes.Replace(source, []byte(m.search), []byte(m.replace), 1)
	if err := os.WriteFile(path, mutated, 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(path, source, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// build makes the test binary of the mutant's package in the copy, as it is now.
// Without paths in what is built, unchanged packages come from the cache.
func (m mutant) build(t *testing.T, root, binary string) {
	t.Helper()
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-trimpath", "-ldflags=-s -w", "-o", binary, m.pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s cannot be built, so the mutant is stale: %v\n%s", m.pkg, err, out)
	}
}

// run runs the mutant's test by a binary of its package.
func (m mutant) run(t *testing.T, root, binary string) (said string, err error) {
	t.Helper()
	cmd := exec.Command(binary, "-test.run", m.test, "-test.failfast", "-test.timeout", testTimeout)
	cmd.Dir = filepath.Join(root, m.pkg)
	cmd.Env = append(os.Environ(), fixedDraws...)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "no tests to run") {
		t.Fatalf("the mutant is stale: %s has no test %s", m.pkg, m.test)
	}
	return string(out), err
}

// mustFail runs the test with the mutant. It has to fail by its own judgement or
// a panic.
func (m mutant) mustFail(t *testing.T, root string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "mutated.test")
	m.build(t, root, binary)
	said, err := m.run(t, root, binary)
	var exit *exec.ExitError
	switch {
	case err == nil:
		t.Fatalf("%s did not notice the mutant", m.test)
	case !errors.As(err, &exit):
		t.Fatal(err)
	case !strings.Contains(said, "--- FAIL: Test") && !strings.Contains(said, "panic: "):
		t.Fatalf("no test failed, so the mutant is stale:\n%s", said)
	}
}

// baseline are the tests as they are, without a mutant: one binary a package, and
// each test once.
type baseline struct {
	root     string
	binaries map[string]string // by package
	passed   map[string]bool   // by package and test
}

// mustPass fails if the mutant's test fails without it.
func (b *baseline) mustPass(t *testing.T, m mutant) {
	t.Helper()
	name := m.pkg + " " + m.test
	if b.passed[name] {
		return
	}
	binary := b.binaries[m.pkg]
	if binary == "" {
		binary = filepath.Join(b.root, strings.ReplaceAll(m.pkg[len("./"):], "/", "-")+".test")
		m.build(t, b.root, binary)
		b.binaries[m.pkg] = binary
	}
	if said, err := m.run(t, b.root, binary); err != nil {
		t.Fatalf("%s fails without the mutant:\n%s", m.test, said)
	}
	b.passed[name] = true
}
