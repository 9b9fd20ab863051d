package consul

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// modelKey is a key as the model has it.
type modelKey struct {
	value, session string
	flags          uint64
	locked         int
	modified       uint64
}

// model is keys and sessions in the plainest way. Sessions have no lock delay; those
// that delete are told apart by their letter.
type model struct {
	keys     map[string]*modelKey
	sessions map[string]string // letter → id, while it is open
}

func (w *model) below(prefix string) (names []string) {
	for k := range w.keys {
		if strings.HasPrefix(k, prefix) {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	return names
}

func (w *model) end(letter string) {
	id := w.sessions[letter]
	delete(w.sessions, letter)
	for name, k := range w.keys {
		switch {
		case id == "" || k.session != id:
		case letter == "d":
			delete(w.keys, name)
		default:
			k.session = ""
		}
	}
}

// put is what PUT does with a key: cas < 0: no condition.
func (w *model) put(name, value string, flags uint64, cas int64, acquire, release string) bool {
	k := w.keys[name]
	switch {
	case cas == 0 && k != nil, cas > 0 && (k == nil || k.modified != uint64(cas)):
		return false
	case acquire != "" && k != nil && k.session != "" && k.session != acquire:
		return false
	case release != "" && (k == nil || k.session != release):
		return false
	}
	if k == nil {
		k = &modelKey{}
		w.keys[name] = k
	}
	if acquire != "" && k.session == "" {
		k.locked++
		k.session = acquire
	}
	if release != "" {
		k.session = ""
	}
	k.value, k.flags = value, flags
	return true
}

// TestKeysAndSessionsAsInTheModel plays random requests to the door and to the model:
// answers and what is then there are the same, and an index never goes back.
func TestKeysAndSessionsAsInTheModel(t *testing.T) {
	rounds := 0
	rapid.Check(t, func(rt *rapid.T) {
		rounds++
		m := startMember(t, func(c *Config) { c.Namespace = fmt.Sprintf("round-%d", rounds) })
		w := &model{keys: map[string]*modelKey{}, sessions: map[string]string{}}
		last := map[string]uint64{}
		name := func() string { return rapid.SampledFrom([]string{"a", "a/b", "a/c", "b"}).Draw(rt, "key") }
		letter := func() string { return rapid.SampledFrom([]string{"r", "d"}).Draw(rt, "session") }
		ask := func(method, path, body, want string) {
			if a := m.do(method, path, body); a.StatusCode != http.StatusOK || a.body != want {
				rt.Fatalf("%s %s %q: %d %s, want %s", method, path, body, a.StatusCode, a.body, want)
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 8).Draw(rt, "what") {
			case 0:
				if l := letter(); w.sessions[l] == "" {
					body := `{"LockDelay":"0s","NodeChecks":[]}`
					if l == "d" {
						body = `{"LockDelay":"0s","NodeChecks":[],"Behavior":"delete"}`
					}
					w.sessions[l] = m.create(body)
				}
			case 1:
				if l := letter(); w.sessions[l] != "" {
					ask("PUT", "/v1/session/destroy/"+w.sessions[l], "", "true")
					w.end(l)
				}
			case 2:
				k := name()
				ask("DELETE", "/v1/kv/"+k, "", "true")
				delete(w.keys, k)
			case 3:
				prefix := rapid.SampledFrom([]string{"", "a", "a/"}).Draw(rt, "prefix")
				ask("DELETE", "/v1/kv/"+prefix+"?recurse", "", "true")
				for _, k := range w.below(prefix) {
					delete(w.keys, k)
				}
			default:
				k, value, flags := name(), rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "value"), rapid.Uint64Range(0, 1).Draw(rt, "flags")
				path := fmt.Sprintf("/v1/kv/%s?flags=%d", k, flags)
				cas, acquire, release := int64(-1), "", ""
				switch rapid.IntRange(0, 4).Draw(rt, "how") {
				case 0:
					cas = 0
					if o := w.keys[k]; o != nil && rapid.Bool().Draw(rt, "right") {
						cas = int64(o.modified)
					}
					path += fmt.Sprintf("&cas=%d", cas)
				case 1, 2:
					if acquire = w.sessions[letter()]; acquire != "" {
						path += "&acquire=" + acquire
					}
				case 3:
					if release = w.sessions[letter()]; release != "" {
						path += "&release=" + release
					}
				}
				ask("PUT", path, value, fmt.Sprint(w.put(k, value, flags, cas, acquire, release)))
			}
			w.compare(rt, m, last)
		}
	})
}

// compare reads everything, and takes the indexes that the model cannot know.
func (w *model) compare(rt *rapid.T, m *member, last map[string]uint64) {
	a := m.do("GET", "/v1/kv/?recurse", "")
	var list []struct {
		Key, Value, Session      string
		Flags                    uint64
		LockIndex                int
		CreateIndex, ModifyIndex uint64
	}
	if a.StatusCode == http.StatusOK {
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			rt.Fatal(err)
		}
	}
	names := w.below("")
	if len(list) != len(names) {
		rt.Fatalf("%s, want %v", a.body, names)
	}
	newest := uint64(0)
	for i, e := range list {
		k := w.keys[names[i]]
		value, _ := base64.StdEncoding.DecodeString(e.Value)
		if e.Key != names[i] || string(value) != k.value || e.Session != k.session || e.Flags != k.flags || e.LockIndex != k.locked {
			rt.Fatalf("%+v, want %s: %+v", e, names[i], *k)
		}
		if e.ModifyIndex < k.modified || e.ModifyIndex < e.CreateIndex {
			rt.Fatalf("%+v was modified at %d", e, k.modified)
		}
		k.modified, newest = e.ModifyIndex, max(newest, e.ModifyIndex)
	}
	for _, path := range []string{"/v1/kv/?recurse", "/v1/kv/a?keys", "/v1/kv/a", "/v1/kv/b"} {
		a := m.do("GET", path, "")
		var at uint64
		if _, err := fmt.Sscan(a.Header.Get("X-Consul-Index"), &at); err != nil || at < last[path] || path == "/v1/kv/?recurse" && at < newest {
			rt.Fatalf("%s is of index %s after %d, and has one of %d", path, a.Header.Get("X-Consul-Index"), last[path], newest)
		}
		last[path] = at
	}
}
