package ovsdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// trio is three members that `incumbent cluster local` has started.
type trio struct {
	t       *testing.T
	Servers string `json:"servers"`
	Members []*struct {
		Name    string `json:"name"`
		URL     string `json:"url"`
		OVSDB   string `json:"ovsdb"`
		Control string `json:"ovsdb_ctl"`
		Log     string `json:"log"`
		PID     int    `json:"pid"`
	} `json:"members"`
}

// startCluster starts three members with the databases that args give.
func startCluster(t *testing.T, args ...string) *trio {
	t.Helper()
	c := &trio{t: t}
	argv := append([]string{"cluster", "local", "--port", "0", "--data-dir", t.TempDir(), "-o", "json", "--ovsdb-listen", "127.0.0.1:0"}, args...)
	cmd := exec.Command(outside.Binary(t), argv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait()
		for _, m := range c.Members {
			if text, _ := os.ReadFile(m.Log); t.Failed() {
				t.Logf("%s said:\n%s", m.Name, text)
			}
		}
	})
	decoded := make(chan error, 1)
	go func() { decoded <- json.NewDecoder(out).Decode(c) }()
	select {
	case err := <-decoded:
		if err != nil {
			t.Fatalf("the cluster did not start: %v\n%s", err, &stderr)
		}
	case <-time.After(2 * patience):
		t.Fatal("the cluster did not start in time")
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return c
}

// remotes is where the members listen, as it is given to programs.
func (c *trio) remotes() string {
	var list []string
	for _, m := range c.Members {
		list = append(list, "tcp:"+m.OVSDB)
	}
	return strings.Join(list, ",")
}

// killLeader kills the member that leads.
func (c *trio) killLeader() {
	c.t.Helper()
	out, errs, code := outside.Run(c.t, "cluster", "ls", "-o", "json", "--server", c.Servers)
	var is struct{ Leader string }
	if err := json.Unmarshal([]byte(out), &is); code != 0 || err != nil {
		c.t.Fatalf("who leads: exit code %d, %v\n%s%s", code, err, out, errs)
	}
	for _, m := range c.Members {
		if m.Name == is.Leader {
			if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
				c.t.Fatal(err)
			}
			return
		}
	}
	c.t.Fatalf("no member is called %q", is.Leader)
}

// call makes a call of the native API, by its name.
func (c *trio) call(member int, name, body string) (string, int) {
	c.t.Helper()
	res, err := http.Post(c.Members[member].URL+"/incumbent.v1.TableService/"+name, "application/json", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text), res.StatusCode
}

// A database that one member has answered to be there is there for who asks another at once,
// which may not have applied it yet: it is listed; and so are its next schema and the tables
// of that.
func TestG22_ADatabaseIsThereOnEveryMember(t *testing.T) {
	c := startCluster(t)
	var at []*session
	for _, m := range c.Members {
		at = append(at, connect(t, "tcp:"+m.OVSDB))
	}
	for i := range 96 {
		name, first := fmt.Sprint("D", i), i%len(at)
		schema := fmt.Sprintf(`{"name":%q,"version":"1.0.0","tables":{"T":{"isRoot":true,"columns":{"n":{"type":"integer"}}}}}`, name)
		quoted, _ := json.Marshal(schema) //nolint:errchkjson // a text
		if text, status := c.call(first, "DefineSchema", fmt.Sprintf(`{"schema":%s}`, quoted)); status != http.StatusOK {
			t.Fatalf("%d: %s", status, text)
		}
		other := at[(first+1)%len(at)]
		insert := object{"op": "insert", "table": "T", "row": object{"n": 1}}
		switch i / len(at) % 8 {
		case 0:
			if text, status := c.call((first+1)%len(at), "Transact", fmt.Sprintf(`{"database":%q,"operations":"[{\"op\":\"insert\",\"table\":\"T\",\"row\":{}}]"}`, name)); status != http.StatusOK {
				t.Errorf("%s: a transaction of the native API: %d: %s", name, status, text)
			}
		case 1:
			if m, err := other.ask("transact", name, insert); err != nil || m.Error != nil {
				t.Errorf("%s: a transaction: %v, %s", name, err, m.Error)
			}
		case 2:
			if m, err := other.ask("get_schema", name); err != nil || m.Error != nil {
				t.Errorf("%s: the schema: %v, %s", name, err, m.Error)
			}
		case 3:
			if m, err := other.ask("monitor_cond", name, name, object{"T": []object{{"columns": []string{"n"}}}}); err != nil || m.Error != nil {
				t.Errorf("%s: a monitor: %v, %s", name, err, m.Error)
			}
		case 4:
			if m, err := other.ask("list_dbs"); err != nil || m.Error != nil || !strings.Contains(fmt.Sprint(m.Result), name) {
				t.Errorf("%s: the databases: %v, %s, %s", name, err, m.Error, m.Result)
			}
		default:
			next := strings.Replace(strings.Replace(string(quoted), "1.0.0", "2.0.0", 1), `\"T\":`, `\"U\":`, 1)
			if text, status := c.call((first+1)%len(at), "DefineSchema", fmt.Sprintf(`{"schema":%s,"convert":true}`, next)); status != http.StatusOK {
				t.Errorf("%s: another schema: %d: %s", name, status, text)
			}
			third := at[(first+2)%len(at)]
			switch i / len(at) % 8 {
			case 5:
				if m, err := third.ask("transact", name, object{"op": "insert", "table": "U", "row": object{}}); err != nil || m.Error != nil || strings.Contains(fmt.Sprint(m.Result), "error") {
					t.Errorf("%s: a transaction on a table of the next schema: %v, %s, %s", name, err, m.Error, m.Result)
				}
			case 6:
				if m, err := third.ask("get_schema", name); err != nil || m.Error != nil || !strings.Contains(fmt.Sprint(m.Result), "2.0.0") {
					t.Errorf("%s: the next schema: %v, %s, %s", name, err, m.Error, m.Result)
				}
			default:
				if m, err := third.ask("monitor_cond", name, name, object{"U": []object{{"columns": []string{"n"}}}}); err != nil || m.Error != nil {
					t.Errorf("%s: a monitor of a table of the next schema: %v, %s", name, err, m.Error)
				}
			}
		}
	}
	if m, err := at[0].ask("get_schema", "none"); err != nil || !strings.Contains(fmt.Sprint(m.Error), "unknown database") {
		t.Errorf("a database that is not there: %v, %s", err, m.Error)
	}
}
