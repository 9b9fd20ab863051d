package bench

import (
	"context"

	"google.golang.org/protobuf/encoding/protowire"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Field numbers of stream.proto and kv.proto that watchers read by hand.
const (
	fieldWatchKeys = 12 // ServerFrame
	fieldEvents    = 1  // WatchKeysResponse
	fieldIndex     = 1  // KeyEvent
	fieldEntry     = 3  // KeyEvent
	fieldValue     = 3  // KeyValue
)

// playWatch changes a key by calls and watches it over streams.
func playWatch(ctx context.Context, r *run) error {
	if r.sc.Door == doorConsul {
		return playConsulWatch(ctx, r)
	}
	r.setPhase("connecting")
	key, workers := newTag()+"/changed", make([]*keyWorker, changers)
	defer closeAll(workers)
	err := inParallel(ctx, len(workers), func(i int) (err error) {
		workers[i], err = r.dialKeys(ctx, i, key)
		return err
	})
	if err != nil {
		return err
	}
	return r.fanOut(ctx, FanOut{
		Put: func(ctx context.Context, changer int, value []byte) error {
			w := workers[changer]
			defer context.AfterFunc(ctx, w.conn.close)()
			copy(w.value, value)
			return w.put()
		},
		Watch: func(ctx context.Context, i int, began func(), seen func(uint64, []byte)) error {
			return r.watchKey(ctx, i, key, began, seen)
		},
	})
}

// watchKey follows a key over a stream of its own, with the values that are stored.
func (r *run) watchKey(ctx context.Context, i int, key string, began func(), seen func(uint64, []byte)) error {
	stream, br, err := r.clients[i%len(r.clients)].DialStream(ctx, client.StreamOptions{Local: r.source(i), ReadBuffer: readBuffer})
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	err = stream.Send(&apiv1.ClientFrame{Id: 1, Request: &apiv1.ClientFrame_WatchKeys{WatchKeys: &apiv1.WatchKeysRequest{
		Key: key, Values: apiv1.WatchedValues_WATCHED_VALUES_NEW,
	}}})
	if err != nil {
		return err
	}
	begun := false
	return stream.ServeRaw(br, func(msg []byte) error {
		return eachAnswer(msg, func(a *answer) error {
			switch {
			case a.failed:
				f, err := a.full()
				if err == nil {
					err = client.DetailError(f.Error)
				}
				return err
			case !begun: // what is there: nothing
				begun = true
				began()
				return nil
			}
			return a.keyEvents(seen)
		})
	})
}

// keyEvents calls seen with each change that the answer tells of.
func (a *answer) keyEvents(seen func(index uint64, value []byte)) error {
	return eachField(a.raw, func(num protowire.Number, _ protowire.Type, _ uint64, watched []byte) error {
		if num != fieldWatchKeys {
			return nil
		}
		return eachField(watched, func(num protowire.Number, _ protowire.Type, _ uint64, event []byte) error {
			if num != fieldEvents {
				return nil
			}
			var index uint64
			var value []byte
			err := eachField(event, func(num protowire.Number, _ protowire.Type, v uint64, entry []byte) error {
				switch num {
				case fieldIndex:
					index = v
				case fieldEntry:
					return eachField(entry, func(num protowire.Number, _ protowire.Type, _ uint64, data []byte) error {
						if num == fieldValue {
							value = data
						}
						return nil
					})
				}
				return nil
			})
			if err == nil {
				seen(index, value)
			}
			return err
		})
	})
}
