package ovsdb

import "sync"

// taskList is what is to be done for its owner, one task at a time. A mutex of the owner guards
// it.
type taskList struct {
	list    []func()
	running bool // somebody runs them, or is about to
}

// add puts a task behind all others; true: run is to be called, soon. With the mutex held.
func (t *taskList) add(task func()) bool {
	t.list = append(t.list, task)
	begin := !t.running
	t.running = true
	return begin
}

// run runs tasks that wait, a bounded number of them; true: it is to be called again, for more.
// Without the mutex, which the tasks may take.
func (t *taskList) run(mu *sync.Mutex) bool {
	for range tasksAtATime {
		mu.Lock()
		if len(t.list) == 0 {
			t.running, t.list = false, nil
			mu.Unlock()
			return false
		}
		task := t.list[0]
		t.list[0] = nil
		t.list = t.list[1:]
		mu.Unlock()
		task()
	}
	return true
}
