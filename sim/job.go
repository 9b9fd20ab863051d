package sim

import (
	"iter"
	"time"
)

// job is work on files: a coroutine that gives way where the disk takes its
// time, while everything else of the process goes on.
type job struct {
	next  func() (time.Duration, bool)
	stop  func()
	yield func(time.Duration) bool // inside; nil once abandoned
	in    bool                     // its code is running
}

// onDisk does work on files, one after another. Its turn comes after a moment.
func (p *process) onDisk(do func() error) {
	j := &job{}
	p.disk = j
	var err error
	j.next, j.stop = iter.Pull(func(yield func(time.Duration) bool) {
		j.yield = yield
		err = do()
	})
	var step func()
	step = func() {
		j.in = true
		d, more := j.next()
		j.in = false
		if more {
			p.w.after(d, func() { p.while(step) })
			return
		}
		p.disk = nil
		p.must(err)
		p.work()
	}
	p.step(step)
}

// wait lets time pass, if it is work on files that asks for it: a process that
// starts waits for nobody.
func (p *process) wait(d time.Duration) {
	if j := p.disk; j != nil && j.in && j.yield != nil && d > 0 && !j.yield(d) {
		j.yield = nil
	}
}

// abandon lets the work run to its end without a disk.
func (j *job) abandon() {
	if j.in {
		return // it is running, and finds out by itself
	}
	j.in = true
	j.stop()
	j.in = false
}
