package outside

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// keysPatience is how long a change of a key may take to be shown.
const keysPatience = 2 * time.Minute

// Keys does with keys and values what people do, by the command line and by the
// client, both at one member whose keys below play/ are this call's.
func Keys(t *testing.T, server string, c *client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), keysPatience)
	defer cancel()
	keysByCommand(t, server)
	keysByTree(t, ctx, c.KV(""))
	locksOfSessions(t, ctx, c)
}

// keysByCommand stores, reads, compares, lists, imports and deletes.
func keysByCommand(t *testing.T, server string) {
	t.Helper()
	export := filepath.Join(t.TempDir(), "export.json")
	text := `[{"key": "play/c/1", "flags": 7, "value": "b25l"}, {"key": "play/c/2", "flags": 0, "value": ""}]`
	if err := os.WriteFile(export, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args string
		code int
		out  string // in what is printed, or in what is said
	}{
		{"get play/x", 3, "is not there"},
		{"put play/x one --if-index 0", 0, "play/x stored at index"},
		{"put play/x two --if-index 0", 6, "it was last modified at index"},
		{"put play/x two --if-value one --flags 9", 0, "stored"},
		{"put play/x three --if-value one", 6, "not as the condition says"},
		{"get play/x", 0, "two"},
		{"import " + export, 0, "2 stored"},
		{"get play/c/1", 0, "one"},
		{"ls play/ --separator / -o jsonl", 0, `{"prefix":"play/c/"}`},
		{"ls play/c/", 0, "play/c/2"},
		{"rm play/c/ --tree", 0, "2 deleted"},
		{"rm play/c/1", 3, "is not there"},
		{"rm play/x --if-index 1", 6, "last modified at index"},
		{"rm play/x", 0, "1 deleted"},
		{"ls play/ -o json", 0, "[]"},
		{"watch play/x --after 9999999", 6, "does not exist yet"},
	} {
		args := append([]string{"kv"}, strings.Fields(step.args)...)
		out, said, code := Run(t, append(args, "--server", server)...)
		if code != step.code || !strings.Contains(out+said, step.out) {
			t.Errorf("kv %s: exit code %d, %q, %q", step.args, code, out, said)
		}
	}
	out, said, code := Run(t, "kv", "put", "play/x", "v", "-o", "json", "--server", server)
	var put struct {
		Index string
		Entry struct {
			Value    string
			Modified string `json:"modified_index"`
		}
	}
	if err := json.Unmarshal([]byte(out), &put); err != nil || code != 0 || put.Entry.Value != "dg==" || put.Entry.Modified != put.Index {
		t.Errorf("kv put -o json: exit code %d, %q, %q, %v", code, out, said, err)
	}
}

// keysByTree has a watcher see a tree come and go.
func keysByTree(t *testing.T, ctx context.Context, keys *client.KV) { //nolint:revive // the test comes first here
	t.Helper()
	const entries = 300 // more than a piece of a watch has
	var first incumbent.Index
	for i := range entries {
		at, err := keys.Put(ctx, "play/tree/"+string(rune('a'+i%26))+strings.Repeat("x", i/26), []byte{byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = at - 1
		}
	}
	if n, err := keys.DeleteTree(ctx, "play/tree/"); n != entries || err != nil {
		t.Fatalf("%d deleted, %v", n, err)
	}
	put, last := 0, uint64(first)
	for m, err := range keys.Watch(ctx, client.WatchKeysOptions{Key: "play/tree/", Prefix: true, After: first}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.Events {
			if e.What == "put" && e.Index <= last || e.Index < last {
				t.Fatalf("index %d after %d", e.Index, last)
			}
			if last = e.Index; e.What == "put" {
				put++
			}
		}
		if n := len(m.Events); n > 0 && m.Events[n-1].What == "deleted" {
			gone := slices.IndexFunc(m.Events, func(e *apiv1.KeyEvent) bool { return e.What == "deleted" })
			if put != entries || n-gone != entries || m.Events[gone].Index != m.Events[n-1].Index {
				t.Errorf("%d stored, then %d gone together", put, n-gone)
			}
			return
		}
	}
	t.Error("the watch ended")
}

// locksOfSessions has locks end by their session's wish, and with it.
func locksOfSessions(t *testing.T, ctx context.Context, c *client.Client) { //nolint:revive // as above
	t.Helper()
	keys := c.KV("")
	open := func(ttl time.Duration) incumbent.SessionID {
		id := incumbent.NewSessionID()
		if _, err := c.Sessions().OpenSession(ctx, connect.NewRequest(&apiv1.OpenSessionRequest{Id: id.String(), TtlMs: uint32(ttl.Milliseconds())})); err != nil {
			t.Fatal(client.AsError(err))
		}
		return id
	}
	mine, brief := open(time.Hour), open(time.Second)
	began, err := keys.Put(ctx, "play/lock/0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Lock(ctx, "play/lock/1", []byte("a"), mine, client.LockOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.Lock(ctx, "play/lock/1", nil, open(time.Hour), client.LockOptions{}); incumbent.KindOf(err) != incumbent.Held || client.FoundEntry(err).GetSession() != mine.String() {
		t.Errorf("a lock of another: %v", err)
	}
	if err := keys.Unlock(ctx, "play/lock/1", []byte("b"), mine); err != nil {
		t.Error(err)
	}
	// A session that nobody extends ends by itself, unless it has before these calls.
	for _, o := range []client.LockOptions{{}, {DeleteOnEnd: true}} {
		key := map[bool]string{false: "play/lock/2", true: "play/lock/3"}[o.DeleteOnEnd]
		for {
			_, err := keys.Lock(ctx, key, []byte("c"), brief, o)
			if err == nil {
				break
			}
			if incumbent.KindOf(err) != incumbent.Expired {
				t.Fatal(err)
			}
			brief = open(10 * time.Second)
		}
	}
	var told []string
	for m, err := range keys.Watch(ctx, client.WatchKeysOptions{Key: "play/lock/", Prefix: true, After: began}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.Events {
			key := e.Entry.GetKey() + e.Previous.GetKey()
			told = append(told, e.What+" "+key[len("play/lock/"):len("play/lock/")+1])
		}
		if slices.Contains(told, "unlocked 2") && slices.Contains(told, "deleted 3") {
			break
		}
	}
	for first, then := range map[string]string{"locked 1": "unlocked 1", "locked 2": "unlocked 2", "locked 3": "deleted 3"} {
		if i := slices.Index(told, first); i < 0 || !slices.Contains(told[i:], then) {
			t.Errorf("%q and then %q were not told: %v", first, then, told)
		}
	}
}
