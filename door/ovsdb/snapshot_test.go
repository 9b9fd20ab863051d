package ovsdb

import "testing"

// The rows of conditions are kept for those who ask for them again before they change,
// and not for who is alone with its conditions.
func TestSnapshotsAreKeptFromTheSecondOn(t *testing.T) {
	m := startWithSchema(t)
	a, b := m.dial(), m.dial()
	a.call("transact", insertA)
	f := m.door.feeds.of("T")
	kept := func() (n int) {
		done := make(chan int)
		f.do(func() {
			n := 0
			for _, s := range f.matcher.specs {
				if s.kept != nil {
					n++
				}
			}
			done <- n
		})
		return <-done
	}
	const what = `["T","m",{"P":{"columns":["name"],"where":[["name","==","a"]]}}]`
	first := a.call("monitor_cond", what)
	if n := kept(); n != 0 {
		t.Errorf("the rows of who is alone are kept %d times", n)
	}
	want(t, "the same for a second client", b.call("monitor_cond", what), first)
	if n := kept(); n != 1 {
		t.Errorf("the rows that two have asked for are kept %d times", n)
	}
	a.write(`{"method":"transact","params":["T",{"op":"update","table":"P","where":[],"row":{"name":"a","chassis":"c2"}}],"id":7}`)
	a.answer()
	if n := kept(); n != 0 {
		t.Errorf("rows that have changed are kept %d times", n)
	}
	c := m.dial()
	want(t, "the same for a third client", c.call("monitor_cond", what), first)
	if n := kept(); n != 0 {
		t.Errorf("the rows of the first behind a change are kept %d times", n)
	}
}
