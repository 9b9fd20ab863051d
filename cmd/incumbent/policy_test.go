package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// policiesOf are the policies that a page shows.
func policiesOf(t *testing.T, path string) (list []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rest := string(b)
	for {
		_, after, found := strings.Cut(rest, "```yaml\n")
		if !found {
			return list
		}
		var text string
		text, rest, _ = strings.Cut(after, "```")
		list = append(list, text)
	}
}

func serverVars(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"INCUMBENT_SERVER": openServer(t).URL()}
}

// What the page shows can be set, is printed as it was written, and lets do what the
// page says.
func TestPoliciesOfThePage(t *testing.T) {
	vars := serverVars(t)
	list := policiesOf(t, "../../docs/policies.md")
	if len(list) < 6 {
		t.Fatalf("%d policies on the page, there were more", len(list))
	}
	for i, text := range list {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		name := "p" + string(rune('a'+i))
		if strings.Contains(text, "name: juju") {
			name = "juju"
		}
		if got := execute(t, vars, "policy", "set", name, "-f", file, "--if-index", "0"); got.code != 0 {
			t.Fatalf("%s: exit code %d: %s", text, got.code, got.stderr)
		}
		got := execute(t, vars, "policy", "get", name)
		if err := os.WriteFile(file, []byte(got.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
		if again := execute(t, vars, "policy", "set", name, "-f", file); again.code != 0 {
			t.Errorf("what get printed cannot be set: %s\n%s", again.stderr, got.stdout)
		}
	}
	for question, want := range map[string]string{
		"--as agent:mysql/0 --verb write --kind leases --namespace db mysql":                                "allowed: rule 1 of policy pa",
		"--as agent:mysql/0 --verb write --kind leases --namespace db pg":                                   "denied: ",
		"--as agent:mysql/0 --verb see --kind keys --namespace db mysql/0/x":                                "allowed: rule 2 of policy pa",
		"--as agent:mysql/0 --verb write --kind keys --namespace db mysql/1/x":                              "denied: ",
		"--as agent:mysql/0 --verb see --kind keys --namespace db shared/ --tree":                           "allowed: rule 3 of policy pa",
		"--as agent:mysql/0 --verb see --kind keys --namespace db sha --tree":                               "denied: ",
		"--as agent:mysql/7 --verb write --kind leases --namespace application-leadership --model m mysql":  "allowed: rule 1 of policy juju",
		"--as agent:mysql/7 --verb write --kind leases --namespace application-leadership --holder x mysql": "denied: ",
		"--as observer:dash --verb see --kind cluster":                                                      "allowed: rule 3 of policy pf",
		"--as agent:hv1 --verb write --kind tables OVN_Southbound":                                          "allowed: rule 1 of policy pb, as far as these roles of the database allow: ovn-controller",
		"--as agent:hv1 --verb administer --kind tables OVN_Southbound":                                     "denied: ",
		"--as agent:hv1 --verb write --kind tables OVN_Northbound":                                          "denied: ",
		"--as agent:northd --verb write --kind tables OVN_Southbound":                                       "allowed: rule 1 of policy pc\n",
		"--as observer:dash --verb see --kind keys k":                                                       "denied: ",
		"--as agent:janitor --verb release-others --kind leases --namespace batch job":                      "allowed: rule 1 of policy pg",
		"--as agent:janitor --verb release-others --kind sessions agent:batch/9":                            "allowed: rule 2 of policy pg",
		"--as operator:me --verb administer --kind leases x":                                                "allowed: operators may do everything",
	} {
		got := execute(t, vars, append([]string{"policy", "test"}, strings.Fields(question)...)...)
		code := 0
		if strings.HasPrefix(want, "denied") {
			code = exitDenied
		}
		if got.code != code || !strings.HasPrefix(got.stdout, want) {
			t.Errorf("%s: exit code %d: %s%s, want %s", question, got.code, got.stdout, got.stderr, want)
		}
	}
	if got := execute(t, vars, "policy", "ls"); got.code != 0 || !strings.Contains(got.stdout, "agent:mysql/*") || !strings.Contains(got.stdout, "operator:local") {
		t.Errorf("ls: %d %s", got.code, got.stdout)
	}
	if got := execute(t, vars, "events"); !strings.Contains(got.stdout, "policy set") || !strings.Contains(got.stdout, "operator:local") {
		t.Errorf("events do not say who set a policy: %s", got.stdout)
	}
}

func TestPolicyFilesThatCannotBe(t *testing.T) {
	vars := serverVars(t)
	for name, text := range map[string]string{
		"nothing":          "",
		"another field":    "for: [\"agent:a\"]\nrule: []\n",
		"a misspelt field": "for: [\"agent:a\"]\nrules:\n- {kind: leases, namspace: x, verbs: [see]}\n",
		"roles of leases":  "for: [\"agent:a\"]\nrules:\n- {kind: leases, namespace: x, verbs: [\"write:r\"]}\n",
		"two roles":        "for: [\"agent:a\"]\nrules:\n- {kind: tables, namespace: x, verbs: [\"write:r\", \"write:s\"]}\n",
		"a role, and all":  "for: [\"agent:a\"]\nrules:\n- {kind: tables, namespace: x, verbs: [\"write:r\", write]}\n",
		"an unknown verb":  "for: [\"agent:a\"]\nrules:\n- {kind: leases, namespace: x, verbs: [sea]}\n",
		"no namespace":     "for: [\"agent:a\"]\nrules:\n- {kind: leases, verbs: [see]}\n",
		"two":              "for: [\"agent:a\"]\n---\nfor: [\"agent:b\"]\n",
		"another name":     "name: q\nfor: [\"agent:a\"]\n",
		"no yaml":          "{",
	} {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := execute(t, vars, "policy", "set", "p", "-f", file); got.code != exitUsage {
			t.Errorf("%s: exit code %d: %s", name, got.code, got.stderr)
		}
	}
	for _, args := range []string{"set p", "get p", "rm p", "test x", "test --as agent:a --verb see x"} {
		if got := execute(t, vars, append([]string{"policy"}, strings.Fields(args)...)...); got.code == 0 {
			t.Errorf("%s: succeeded", args)
		}
	}
}
