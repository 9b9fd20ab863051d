package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestLeaseVerbs plays one lease's life against a real server in this process.
func TestLeaseVerbs(t *testing.T) {
	vars := map[string]string{"INCUMBENT_SERVER": openServer(t).URL()}
	for _, step := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"lease get a", 3, "", "not_found"},
		{"lease get default:b:c:d", 3, "", "give it as c:d --namespace default --model b"},
		{"lease claim a --holder me --ttl 1m", 0, "1m0s", ""},
		{"lease claim a --holder you", 3, "", "hint: 'incumbent lease explain a'"},
		{"lease claim a --holder me --ttl 1m", 0, "me", ""},
		{"lease extend a --holder me", 0, "a held for another 1m0s", ""},
		{"lease extend a --holder you", 3, "", "answered by: n1 (leader)"},
		{"lease extend a --token 2 -o jsonl", 0, `"held_ms":60000`, ""},
		{"lease extend a --token 3", 3, "", "a is not held under token 3"},
		{"lease explain a", 0, "a is held by me with token 2", ""},
		{"lease explain a -o jsonl", 0, `"history":[{`, ""},
		{"lease ls --count", 0, "1\n", ""},
		{"lease ls --count -o jsonl", 0, `"count":`, ""},
		{"lease ls b", 0, "NAME", ""},
		{"lease ls b -o json", 0, "[]\n", ""},
		{"lease pin a --by upgrade", 0, "pinned by upgrade", ""},
		{"lease unpin a --by upgrade", 0, "me", ""},
		{"lease revoke a --token 99", 6, "", "conflict"},
		{"lease revoke a --by op", 0, "being revoked", ""},
		{"lease extend a --holder me", 3, "", "not_holder"},
		{"lease revoke a --by op --force", 0, "free", ""},
		{"lease explain a", 0, "revoked from me by op", ""},
		{"lease release a --holder me", 0, "nothing to release", ""},
		{"lease revoke a", 3, "", "nobody holds"},
		{"lease claim a --holder you", 0, "you", ""},
		{"lease release a --holder me", 3, "", "hint"},
		{"lease release a --holder you", 0, "a released", ""},
		{"lease claim b --holder me", 0, "me", ""},
		{"lease release b --token 1", 0, "nothing to release", ""},
		{"lease claim a --model other --holder m", 0, "m", ""},
		{"lease claim a --namespace n --model other --holder x", 0, "x", ""},
		{"lease ls --all-models", 0, "NAMESPACE  MODEL    NAME", ""},
		{"lease ls --all-models", 0, "\ndefault    other    a     m ", ""},
		{"lease ls --all-models", 0, "\nn          other    a     x ", ""},
		{"lease ls --all-models --count", 0, "3\n", ""},
		{"lease ls --all-models --namespace n --count", 0, "1\n", ""},
		{"lease ls --all-models --model other", 2, "", "either --model or --all-models"},
		{"lease ls --namespace n", 0, "NAME", "nothing in namespace n, model default; --all-models"},
		{"events -o jsonl", 0, `"what":"ready"`, ""},
		{"debug hash", 0, "sha256", ""},
		{"debug snapshot", 0, "snapshot of", ""},
		{"status", 0, "MEMBER", ""},
		{"top -n 2 --every 200ms", 0, "extensions/s", ""},
		{"top --every 100ms", 2, "", "shorter than 200ms"},
		{"top -n -1", 2, "", "negative"},
	} {
		got := execute(t, vars, strings.Fields(step.args)...)
		if got.code != step.code || !strings.Contains(got.stdout, step.stdout) || !strings.Contains(got.stderr, step.stderr) {
			t.Errorf("%s: exit code %d, want %d; printed %q, want %q; said %q, want %q", step.args, got.code, step.code, got.stdout, step.stdout, got.stderr, step.stderr)
		}
		if step.code == 0 && step.stderr == "" && got.stderr != "" {
			t.Errorf("%s: said %q", step.args, got.stderr)
		}
	}
}

// What environment and settings file say is for other commands: they neither
// contradict --all-models nor narrow it. A flag that was typed does.
func TestAllModelsWhateverTheEnvironmentSays(t *testing.T) {
	url := openServer(t).URL()
	for _, where := range []string{"--model m", "--model other", "--namespace n --model other"} {
		claim := "lease claim a --holder me " + where
		if got := execute(t, map[string]string{"INCUMBENT_SERVER": url}, strings.Fields(claim)...); got.code != exitOK {
			t.Fatal(got.stderr)
		}
	}
	for _, vars := range []map[string]string{
		{"INCUMBENT_MODEL": "m"},
		{"INCUMBENT_NAMESPACE": "n"},
		{"INCUMBENT_MODEL": "m", "INCUMBENT_NAMESPACE": "n"},
		{"INCUMBENT_CONFIG": writeSettings(t, "model: m\nnamespace: n\n")},
	} {
		vars["INCUMBENT_SERVER"] = url
		for _, c := range []struct {
			args string
			code int
			want string
		}{
			{"", exitOK, "3\n"},
			{" --namespace n", exitOK, "1\n"},
			{" --model m", exitUsage, ""},
		} {
			args := "lease ls --all-models --count" + c.args
			if got := execute(t, vars, strings.Fields(args)...); got.code != c.code || got.stdout != c.want {
				t.Errorf("%v, %s: exit code %d, printed %q, said %q", vars, args, got.code, got.stdout, got.stderr)
			}
		}
	}
}

// A form that cannot be printed changes nothing first.
func TestWrongOutputFormClaimsNothing(t *testing.T) {
	vars := map[string]string{"INCUMBENT_SERVER": openServer(t).URL()}
	if got := execute(t, vars, "lease", "claim", "a", "-o", "yaml"); got.code != exitUsage {
		t.Errorf("exit code %d", got.code)
	}
	if got := execute(t, vars, "lease", "get", "a"); got.code != exitHeld || !strings.Contains(got.stderr, "not_found") {
		t.Errorf("it was claimed: %v", got)
	}
}

// Each verb that prints data prints one document with json, one object a line
// with jsonl, and keys that are promised.
func TestOutputForms(t *testing.T) {
	vars := map[string]string{"INCUMBENT_SERVER": openServer(t).URL()}
	for _, name := range []string{"a", "b"} {
		if got := execute(t, vars, "lease", "claim", name, "--holder", "me", "--ttl", "1m"); got.code != exitOK {
			t.Fatal(got.stderr)
		}
	}
	for _, c := range []struct {
		args string
		list bool
		keys string
	}{
		{"lease get a", false, "name holder token ttl_ms expires_in_ms session pins since extends previous_holder reason"},
		{"lease claim a --holder me --ttl 1m", false, "name holder token ttl_ms expires_in_ms"},
		{"lease ls", true, "name holder token"},
		{"lease history a", true, "index what holder token at_unix_ms"},
		{"lease explain a", false, "holder token history queue"},
		{"status", false, "verdict index term leader members leases sessions watches connections refusing"},
		{"top -n 1", false, "verdict index shared_reads"},
		{"config show", true, "name value source"},
		{"config show --effective", true, "name value source"},
		{"doctor", true, "check result detail"},
		{"bench ls", true, "name description presets"},
		{"version", false, "version go os arch"},
		{"debug hash", false, "index hash"},
	} {
		json1 := execute(t, vars, append(strings.Fields(c.args), "-o", "json")...)
		var document any
		if err := json.Unmarshal([]byte(json1.stdout), &document); err != nil {
			t.Errorf("%s -o json: %v in %q", c.args, err, json1.stdout)
			continue
		}
		if all, isList := document.([]any); isList != c.list || isList && len(all) == 0 {
			t.Errorf("%s -o json: %q", c.args, json1.stdout)
		}
		lines := strings.Split(strings.TrimSpace(execute(t, vars, append(strings.Fields(c.args), "-o", "jsonl")...).stdout), "\n")
		for _, line := range lines {
			var object map[string]any
			if err := json.Unmarshal([]byte(line), &object); err != nil {
				t.Fatalf("%s -o jsonl: %v in %q", c.args, err, line)
			}
			for key := range strings.FieldsSeq(c.keys) {
				if _, ok := object[key]; !ok {
					t.Errorf("%s -o jsonl: no key %s in %q", c.args, key, line)
				}
			}
		}
		if !c.list && len(lines) != 1 {
			t.Errorf("%s -o jsonl: %d lines", c.args, len(lines))
		}
		table := execute(t, vars, append(strings.Fields(c.args), "-o", "table")...)
		if strings.Contains(table.stdout, "\x1b") || strings.Contains(table.stdout, "{") {
			t.Errorf("%s: %q", c.args, table.stdout)
		}
	}
}

// Indexes and tokens are strings in JSON: a script must not round them.
func TestTokensAreStrings(t *testing.T) {
	vars := map[string]string{"INCUMBENT_SERVER": openServer(t).URL()}
	got := execute(t, vars, "lease", "claim", "a", "--holder", "me", "--ttl", "1m", "-o", "jsonl")
	var l map[string]any
	if err := json.Unmarshal([]byte(got.stdout), &l); err != nil {
		t.Fatal(err)
	}
	if l["token"] != "2" || l["index"] != "2" || l["ttl_ms"] != 60000.0 || l["expires_in_ms"] == 0.0 {
		t.Errorf("got %v", l)
	}
}

func TestNobodyAnswers(t *testing.T) {
	// Port 1 of loopback: nobody listens there.
	for _, args := range []string{"status", "top", "lease get a", "events", "debug hash", "config show --effective"} {
		got := execute(t, map[string]string{"INCUMBENT_SERVER": "http://127.0.0.1:1"}, strings.Fields(args)...)
		if got.code != exitUnavailable || !strings.Contains(got.stderr, "hint: ") || !strings.Contains(got.stderr, "retry: yes") {
			t.Errorf("%s: exit code %d, %q", args, got.code, got.stderr)
		}
	}
}
