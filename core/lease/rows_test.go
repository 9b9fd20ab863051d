package lease

import (
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// Rows are a map from numbers to records, of which copies stay as they are.
func TestRowsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r rows
		want := map[uint64]*Lease{}
		type frozen struct {
			rows rows
			want map[uint64]*Lease
		}
		var copies []frozen
		same := func(r *rows, want map[uint64]*Lease) {
			if r.len() != len(want) {
				t.Fatalf("%d records, want %d", r.len(), len(want))
			}
			for row, l := range want {
				if r.get(row) != l {
					t.Fatalf("row %d is not what it was", row)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				row, l := rapid.Uint64Range(0, 40_000).Draw(t, "row"), new(Lease)
				r.set(row, l)
				want[row] = l
			},
			"clear": func(t *rapid.T) {
				for row := range want {
					r.set(row, nil)
					delete(want, row)
					break
				}
			},
			"copy": func(*rapid.T) { copies = append(copies, frozen{r.copy(), maps.Clone(want)}) },
			"": func(t *rapid.T) {
				same(&r, want)
				if r.get(1<<40) != nil {
					t.Fatal("a row far away has a record")
				}
				for _, c := range copies {
					same(&c.rows, c.want)
				}
			},
		})
	})
}
