package bench

import (
	"strings"
	"testing"
)

// Who asks for what nobody may have counts what was refused, and says so if anything was not.
func TestFloodsOfWhatIsRefused(t *testing.T) {
	fake := &fakeJuju{password: "right"}
	f := &flood{run: newRun(&Scenario{}, Options{JujuPassword: "right"}), floodWork: floods["juju-denied"], doors: map[int]string{0: fake.open(t).address}, model: "m"}
	c, err := f.open(t.Context(), f, 0, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	// This server lets anybody claim for anybody: the first of equal claims is granted.
	if done, err := c.ask(t.Context(), 0); done != deniedClaims || err != nil {
		t.Errorf("%d done, %v", done, err)
	}
	if text := violationsOf(f.run); !strings.Contains(text, "was granted the leadership") {
		t.Errorf("violations %q", text)
	}
	for name, c := range map[string]struct {
		work, says string
		done       int
		fails      bool
	}{
		"echo":         {"ovsdb-echoes", `{"id":1,"result":["x"],"error":null}`, 1, false},
		"no echo":      {"ovsdb-echoes", `{"id":1,"result":null,"error":"unknown method"}`, 0, true},
		"not found":    {"consul-not-found", "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", 1, false},
		"out of order": {"consul-not-found", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno", 0, true},
	} {
		f := &flood{run: newRun(&Scenario{}, Options{}), floodWork: floods[c.work], doors: map[int]string{0: sayOnce(t, c.says)}}
		client, err := f.open(t.Context(), f, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := client.ask(t.Context(), 0); done != c.done || (err != nil) != c.fails {
			t.Errorf("%s: %d done, %v", name, done, err)
		}
		client.end()
	}
}
