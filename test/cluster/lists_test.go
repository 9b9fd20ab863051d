package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/test/lists"
)

// What appenders do.
const (
	appenders = 6 // clients
	listKeys  = 4
	listDir   = "lists/"
)

// listLoad is clients that read and append to lists by transactions, each at a member
// of its own.
type listLoad struct {
	began  time.Time
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex // guards the rest
	history lists.History
	last    int // element
	done    int // transactions that appended something, for certain
}

func (c *trio) startLists(t *testing.T) *listLoad {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listLoad{began: time.Now(), cancel: cancel}
	for i := range appenders {
		a := &appender{load: l, id: i, client: c.clientOf(c.Members[i%len(c.Members)]), rng: rand.New(rand.NewPCG(uint64(i), 3))}
		if i%2 == 0 {
			s, err := a.client.Open(ctx, client.SessionConfig{TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			a.over = s
		}
		l.all.Go(func() { a.run(ctx) })
	}
	return l
}

// now is a moment on the clock of this process.
func (l *listLoad) now() int64 { return int64(time.Since(l.began)) }

func (l *listLoad) element() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return l.last
}

func (l *listLoad) add(t *lists.Txn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history = append(l.history, t)
	if len(t.Appends) > 0 && !t.Failed && t.Return != lists.Unknown {
		l.done++
	}
}

func (l *listLoad) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// finish ends the load, reads all lists at each member, and checks the history.
func (l *listLoad) finish(t *testing.T, c *trio) {
	t.Helper()
	defer l.all.Wait()
	defer l.cancel()
	before := l.count()
	eventually(t, patience, "fifty more transactions append", func() bool { return l.count() >= before+50 })
	l.cancel()
	l.all.Wait()
	for i, m := range c.Members {
		a := &appender{load: l, id: appenders + i, client: c.clientOf(m), rng: rand.New(rand.NewPCG(9, 9))}
		eventually(t, patience, m.Name+" reads all lists", func() bool { return a.read(t.Context(), allLists()) != nil })
	}
	if err := l.history.Check(); err != nil {
		t.Error(err)
	}
	t.Logf("%d transactions, %d have appended", len(l.history), l.done)
}

func allLists() (keys []string) {
	for i := range listKeys {
		keys = append(keys, fmt.Sprint(listDir, i))
	}
	return keys
}

// appender is one client.
type appender struct {
	load   *listLoad
	id     int
	client *client.Client
	over   *client.Session // whose stream its transactions go over; nil: they are called
	rng    *rand.Rand
}

func (a *appender) txn() *client.Txn {
	if a.over != nil {
		return a.over.Txn("")
	}
	return a.client.Txn("")
}

func (a *appender) run(ctx context.Context) {
	for ctx.Err() == nil {
		keys := allLists()
		a.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		keys = keys[:1+a.rng.IntN(3)]
		if seen := a.read(ctx, keys); seen != nil && a.rng.IntN(4) > 0 {
			a.append(ctx, keys, seen)
		}
		select {
		case <-time.After(time.Duration(a.rng.IntN(10)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// read reads lists in one transaction; nil: it had no answer.
func (a *appender) read(ctx context.Context, keys []string) []*apiv1.KeyValue {
	txn := a.txn()
	for _, key := range keys {
		txn.Get(key)
	}
	called := a.load.now()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	res, err := txn.Commit(limit)
	if err != nil {
		return nil
	}
	return a.wasRead(keys, called, res)
}

// wasRead takes note of what a transaction read that changed nothing.
func (a *appender) wasRead(keys []string, called int64, res *apiv1.TxnResponse) []*apiv1.KeyValue {
	t := &lists.Txn{Client: a.id, Called: called, Return: a.load.now(), Reads: map[string][]int{}}
	entries := make([]*apiv1.KeyValue, len(keys))
	for i, r := range res.Results {
		entries[i] = r.GetGet().GetEntry()
		t.Reads[keys[i]] = elementsOf(entries[i])
	}
	a.load.add(t)
	return entries
}

func elementsOf(e *apiv1.KeyValue) (list []int) {
	for word := range strings.FieldsSeq(string(e.GetValue())) {
		n, _ := strconv.Atoi(word) // what is no number nobody appended
		list = append(list, n)
	}
	return list
}

// append appends to some of the lists if all of them are as they were read.
func (a *appender) append(ctx context.Context, keys []string, seen []*apiv1.KeyValue) {
	t := &lists.Txn{Client: a.id, Reads: map[string][]int{}, Appends: map[string]int{}}
	txn := a.txn()
	for i, key := range keys {
		txn.IfIndex(key, incumbent.Index(seen[i].GetModifiedIndex()))
		t.Reads[key] = elementsOf(seen[i])
	}
	for i, key := range keys {
		if i > 0 && a.rng.IntN(2) == 0 {
			txn.Get(key)
			continue
		}
		t.Appends[key] = a.load.element()
		txn.Put(key, fmt.Appendf(nil, "%s %d", seen[i].GetValue(), t.Appends[key]))
	}
	txn.Else()
	for _, key := range keys {
		txn.Get(key)
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	t.Called = a.load.now()
	res, err := txn.Commit(limit)
	t.Return = a.load.now()
	switch kind := incumbent.KindOf(err); {
	case err == nil && res.Succeeded:
	case err == nil:
		if !res.Repeated {
			a.wasRead(keys, t.Called, res)
		}
		t.Failed = true
	case kind == incumbent.Unavailable, kind == incumbent.Overloaded, kind == incumbent.NotLeader, kind == incumbent.DeadlineExceeded:
		t.Failed = true
	default:
		t.Return = lists.Unknown
	}
	a.load.add(t)
}

// Members are killed and stopped under transactions over lists: some order explains
// all that was read, and nothing that was acknowledged is lost.
func TestG24_TransactionsUnderFaults(t *testing.T) {
	c := start(t, "--members", "3")
	load := c.startLists(t)
	for round := range 3 {
		before := load.count()
		eventually(t, patience, "transactions append", func() bool { return load.count() > before+20 })
		leader := c.leader()
		switch round {
		case 0:
			leader.kill(t)
			c.leader(c.others(leader)...)
			leader.again(t, nil)
		case 1:
			leader.signal(syscall.SIGSTOP)
			time.Sleep(2 * electionTimeout) // the fault itself
			leader.signal(syscall.SIGCONT)
		default:
			follower := c.others(leader)[0]
			follower.kill(t)
			before = load.count()
			eventually(t, patience, "transactions append without "+follower.Name, func() bool { return load.count() > before+20 })
			follower.again(t, nil)
		}
		c.leader()
	}
	load.finish(t, c)
	c.sameState(t)
}
