package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Of the clients beside a flood that hold something through the flood's own door, as the
// fleet does through the native one.
const (
	keepers     = 200
	keeperEvery = time.Second      // between what one does to go on holding: often, as criticalEvery
	keeperTTL   = 30 * time.Second // of sessions of Consul's protocol
	keeperLate  = keeperTTL / 10   // what it does may take at most, at p99
)

// keeper is a client that holds something. It is used by one goroutine at a time.
type keeper struct {
	op    string       // what keep is recorded as
	keep  func() error // it goes on holding: an error is a refusal, or that it lost what it held
	holds func() error // an error unless it still has what it took at first
	close func()       // may be called at any time
}

// inTime does something of the keeper's, which ends if it has no answer for too long.
func (k *keeper) inTime(do func() error) error {
	late := time.AfterFunc(floodPatience, k.close)
	defer late.Stop()
	return do()
}

// keeperOpeners have the n-th keeper begin at a door's address. Of the door for Juju's
// agents there is none: beside floods of its claims the whole fleet holds through it.
var keeperOpeners = map[string]func(r *run, address string, n int) (*keeper, error){
	doorConsul: openConsulKeeper, doorOVSDB: openOVSDBKeeper,
}

// openConsulKeeper has a session lock a key. It renews the session.
func openConsulKeeper(r *run, address string, n int) (*keeper, error) {
	ctx, cancel := context.WithTimeout(context.Background(), floodPatience)
	defer cancel()
	conn, err := httpServer{address: address, token: r.credential}.dial(ctx, r.source(n), false)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, conn.close)()
	var session struct{ ID string }
	said, err := askConsul(conn, http.MethodPut, "/v1/session/create", fmt.Sprintf(`{"TTL":"%v","LockDelay":"0s"}`, keeperTTL))
	if err == nil {
		err = json.Unmarshal(said, &session)
	}
	key := fmt.Sprintf("/v1/kv/kept/%d", n)
	if err == nil {
		if said, err = askConsul(conn, http.MethodPut, key+"?acquire="+session.ID, ""); err == nil && strings.TrimSpace(string(said)) != "true" {
			err = incumbent.Errorf(incumbent.Held, "%s is not locked: %.80q", key, said)
		}
	}
	if err != nil {
		conn.close()
		return nil, err
	}
	return &keeper{
		op: "consul-renew",
		keep: func() error {
			_, err := askConsul(conn, http.MethodPut, "/v1/session/renew/"+session.ID, "")
			return err
		},
		holds: func() error {
			var pairs []struct{ Session string }
			said, err := askConsul(conn, http.MethodGet, key, "")
			if err == nil {
				err = json.Unmarshal(said, &pairs)
			}
			if err == nil && (len(pairs) != 1 || pairs[0].Session != session.ID) {
				err = incumbent.Errorf(incumbent.NotHolder, "%s is locked by %v, not by %s", key, pairs, session.ID)
			}
			return err
		},
		close: conn.close,
	}, nil
}

func askConsul(conn *httpConn, method, path, body string) (said []byte, err error) {
	_, said, err = conn.ask(method, path, []byte(body))
	return said, err
}

// openOVSDBKeeper has a connection hold a lock, as long as it lasts. It asks for an echo, as
// clients do that find out whether their server is there.
func openOVSDBKeeper(r *run, address string, n int) (*keeper, error) {
	ctx, cancel := context.WithTimeout(context.Background(), floodPatience)
	defer cancel()
	conn, err := dialOVN(ctx, address, r.source(n))
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, conn.close)()
	lock := fmt.Sprintf("kept%d", n) // an identifier
	said, err := conn.ask("lock", fmt.Sprintf("[%q]", lock))
	if err == nil && !strings.Contains(string(said), "true") {
		err = incumbent.Errorf(incumbent.Held, "the lock %s is another's: %.80q", lock, said)
	}
	if err != nil {
		conn.close()
		return nil, err
	}
	return &keeper{
		op: "ovsdb-echo",
		keep: func() error {
			_, err := conn.ask("echo", "[]") // an answer that is none, as «stolen», is an error
			return err
		},
		holds: func() error {
			_, err := conn.transact(fmt.Sprintf(`{"op":"assert","lock":%q}`, lock))
			return err
		},
		close: conn.close,
	}, nil
}

// kept are the keepers beside a flood.
type kept struct {
	*run
	all     []*keeper
	stop    context.CancelFunc
	running sync.WaitGroup
}

// keepAt has keepers begin at the members' doors, and go on until they are judged.
func (o *ordeal) keepAt(ctx context.Context, door string) error {
	open, ok := keeperOpeners[door]
	if !ok {
		return nil
	}
	who, err := o.whom(ctx, Action{Member: "all"})
	if err != nil {
		return err
	}
	doors, err := o.doorsOf(ctx, door, who)
	if err != nil {
		return err
	}
	k := &kept{run: o.run}
	ctx, k.stop = context.WithCancel(ctx)
	o.kept = k
	for n := range keepers {
		one, err := open(o.run, doors[n%len(doors)], n)
		if err != nil {
			return fmt.Errorf("open a keeper beside the flood: %w", err)
		}
		k.all = append(k.all, one)
		k.running.Go(func() { k.goOn(ctx, one) })
	}
	return nil
}

// goOn has a keeper do what it must until ctx ends, or it fails: then it holds nothing any
// more of which anything is to be said but that.
func (k *kept) goOn(ctx context.Context, one *keeper) {
	record := k.rec.op(one.op)
	for due := k.now(); sleep(ctx, due-k.now()) == nil; due += keeperEvery {
		err := one.inTime(one.keep)
		k.outcome(ctx, record, due, err)
		if err != nil {
			k.check.Violate("%s failed beside a flood: %v", one.op, err)
			return
		}
	}
}

// judge has all show that they still hold what they took, and that they went on in time.
func (k *kept) judge() {
	k.stop()
	k.running.Wait()
	op := k.all[0].op
	most := max(keeperLate, k.check.late) // where the machine stands still, so does this
	if p99 := k.rec.op(op).summary().P99; p99 > float64(most.Milliseconds()) {
		k.check.Violate("%s took %.0f ms beside a flood, at p99: more than %v", op, p99, most)
	}
	held := 0
	for _, one := range k.all {
		if err := one.inTime(one.holds); err != nil {
			k.check.Violate("what was held beside a flood is lost: %v", err)
		} else {
			held++
		}
	}
	k.fact("kept_at_end", float64(held))
}

func (k *kept) close() {
	k.stop()
	for _, one := range k.all {
		one.close()
	}
	k.running.Wait()
}
