package lease

// buckets are the slots by the time at which they are to be looked at, a
// [Bucket] each. Bucket n holds deadlines before n·width, so that all are past
// when it comes up. A slot is in at most one bucket; an entry whose slot says
// it is elsewhere is void.
type buckets struct {
	next  uint32 // first one not yet taken out; always > 0
	slots map[uint32][]ref
	spare [][]ref
}

const (
	maxSpareBuckets = 64
	farBuckets      = 600 // a minute's
)

// number is the bucket of a deadline. Book time starts near 0; 13 years fit.
func (w *buckets) number(deadline int64) uint32 {
	return max(uint32(max(deadline, 0)/int64(Bucket))+1, w.next)
}

// soon is the bucket in which a slot is looked at whose deadline is in bucket n: where that is
// far, an earlier one, after which it is put again. What was given up long before its deadline
// leaves a void entry for no longer than that. Slots differ in it, so that those that are all
// put at once, as a new leader does, do not all come up at once.
func (w *buckets) soon(n uint32, r ref) uint32 {
	return min(n, w.next+farBuckets+uint32(r.slot())%farBuckets)
}

func (w *buckets) reset(now int64) {
	w.slots = make(map[uint32][]ref)
	w.spare = nil
	w.next = uint32(max(now, 0)/int64(Bucket)) + 1
}

// rewind goes back to an earlier time.
func (w *buckets) rewind(now int64) {
	w.next = min(w.next, uint32(max(now, 0)/int64(Bucket))+1)
}

func (w *buckets) put(n uint32, r ref) {
	s, ok := w.slots[n]
	if !ok && len(w.spare) > 0 {
		s = w.spare[len(w.spare)-1]
		w.spare = w.spare[:len(w.spare)-1]
	}
	w.slots[n] = append(s, r)
}

// take calls fn with the entries of all buckets that have come up. fn may put
// slots into later buckets.
func (w *buckets) take(now int64, fn func(n uint32, r ref)) {
	for through := uint32(max(now, 0) / int64(Bucket)); w.next <= through; {
		n := w.next
		w.next++
		s, ok := w.slots[n]
		if !ok {
			continue
		}
		delete(w.slots, n)
		for _, r := range s {
			fn(n, r)
		}
		if len(w.spare) < maxSpareBuckets {
			w.spare = append(w.spare, s[:0])
		}
	}
}
