package admit

import (
	"testing"

	"pgregory.net/rapid"
)

// Who takes all that it gets leaves a fifth, in which the next takes four fifths of what
// is left, and so on; what is taken is never more than there is.
func TestG47_ARoomIsShared(t *testing.T) {
	const most = 1000
	var r Room
	left := int64(most)
	for client := Key(1); client <= 3; client++ {
		w := Who{Client: client | 1<<31}
		for r.Take(w, 1, most) {
			continue
		}
		if left /= shareOfFree[0] + 1; most-r.Taken() != left {
			t.Errorf("client %d leaves %d, want %d", client, most-r.Taken(), left)
		}
	}
	var whole Room
	if !whole.Take(Who{Client: 1 << 31}, most, most) || whole.Take(Who{Client: 1<<31 | 1}, 1, most) {
		t.Error("one piece as large as the room is not taken, or something beside it is")
	}
}

// Whatever is taken and given back, no more is taken than there is, and nothing is left
// once all is given back.
func TestRoomModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.Int64Range(1, 100).Draw(t, "most")
		type piece struct {
			w Who
			n int64
		}
		var r Room
		var had []piece
		sum := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(had) > 0 && rapid.Bool().Draw(t, "give") {
				p := had[0]
				had = had[1:]
				r.Give(p.w, p.n)
				sum -= p.n
			} else {
				p := piece{Who{Client: Key(rapid.Uint32Range(0, 3).Draw(t, "client"))}, rapid.Int64Range(0, 40).Draw(t, "n")}
				if r.Take(p.w, p.n, most) {
					had = append(had, p)
					sum += p.n
				}
			}
			if r.Taken() != sum || sum > most {
				t.Fatalf("%d are taken, of %d there are, and %d are counted", sum, most, r.Taken())
			}
		}
		for _, p := range had {
			r.Give(p.w, p.n)
		}
		if r.taken != 0 || r.account != (account{}) {
			t.Fatalf("%d are taken after all was given back", r.taken)
		}
	})
}
