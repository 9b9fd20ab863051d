package wal

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// image is a log's segments as bytes, to damage and read again.
type image struct {
	names []string // base names
	files [][]byte
}

func imageOf(t testing.TB, fsys vfs.FS) *image {
	t.Helper()
	im := &image{}
	for _, file := range segmentFiles(t, fsys) {
		b, err := vfs.ReadFile(fsys, file)
		must(t, err)
		im.names = append(im.names, file[len(testDir)+1:])
		im.files = append(im.files, b)
	}
	return im
}

// fs returns a filesystem with these segments.
func (im *image) fs(t testing.TB) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	must(t, vfs.MkdirAll(m, testDir))
	for i, name := range im.names {
		must(t, vfs.WriteFile(m, join(testDir, name), im.files[i]))
	}
	return m
}

// without returns the image less one segment.
func (im *image) without(i int) *image {
	return &image{slices.Delete(slices.Clone(im.names), i, i+1), slices.Delete(slices.Clone(im.files), i, i+1)}
}

// read is what the log says, or why it is refused.
func (im *image) read(t testing.TB) (map[uint64]GroupState, *scanner, error) {
	t.Helper()
	sc, err := scan(bytesFS{FS: nil, im: im}, testDir, im.names, nil)
	if err != nil {
		return nil, nil, err
	}
	groups := map[uint64]GroupState{}
	for id, h := range sc.groups {
		groups[id] = GroupState{h.hs, h.mark, h.entries}
	}
	return groups, sc, nil
}

// bytesFS serves an image without copying it, for the millions of readings of
// the tests below.
type bytesFS struct {
	vfs.FS
	im *image
}

func (b bytesFS) Open(name string) (vfs.File, error) {
	i := slices.Index(b.im.names, name[len(testDir)+1:])
	return bytesFile{r: bytes.NewReader(b.im.files[i])}, nil
}

type bytesFile struct {
	vfs.File
	r *bytes.Reader
}

func (f bytesFile) ReadAt(p []byte, off int64) (int, error) { return f.r.ReadAt(p, off) }
func (f bytesFile) Size() (int64, error)                    { return f.r.Size(), nil }
func (f bytesFile) Close() error                            { return nil }

// history3 makes a log of three segments with every type of record, all of it
// synced, whose last segment is partly empty. The end is not an orderly one,
// so nothing but the shape of the last frame protects it.
func history3(t testing.TB) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewMem()
	l, _ := open(t, fsys)
	appendSync(t, l, Batch{Group: 1, Entries: entries(1, 3, 200, 1), HardState: HardState{1, 7, 2}})
	appendSync(t, l, Batch{Group: 2, Entries: entries(1, 2, 100, 1), HardState: HardState{1, 7, 2}})
	must(t, l.MarkSnapshot(1, SnapshotMark{Index: 2, Term: 1, Bytes: 7, File: "1-2.snap"}))
	must(t, l.Close())
	l, _ = open(t, fsys)
	appendSync(t, l, Batch{Group: 1, Entries: entries(3, 4, 200, 2), HardState: HardState{2, 0, 5}})
	must(t, l.InstallSnapshot(2, SnapshotMark{Index: 9, Term: 2, File: "2-9.snap"}))
	appendSync(t, l, Batch{Group: 2, Entries: entries(10, 2, 0, 2)})
	appendSync(t, l, Batch{Group: 1, Entries: entries(7, 3, 250, 2), HardState: HardState{2, 0, 8}})
	appendSync(t, l, Batch{Group: 1, Entries: entries(10, 2, 30, 2)})
	if n := len(segmentFiles(t, fsys)); n != 3 {
		t.Fatalf("history has %d segments, want 3", n)
	}
	return fsys
}

// TestG30_EveryFlippedBitIsFound flips every bit of a log of three segments,
// one at a time, also where nothing was written: each is refused, and the
// error names the file and the sector.
func TestG30_EveryFlippedBitIsFound(t *testing.T) {
	im := imageOf(t, history3(t))
	if _, _, err := im.read(t); err != nil {
		t.Fatal(err)
	}
	flips := 0
	for i, b := range im.files {
		for bit := range len(b) * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			_, _, err := im.read(t)
			b[bit/8] ^= 1 << (bit % 8)
			d := damageOf(t, err)
			sector := int64(bit / 8 / sectorBytes * sectorBytes)
			if d.File != join(testDir, im.names[i]) || d.Offset != sector {
				t.Fatalf("bit %d of %s was reported as %v", bit, im.names[i], err)
			}
			flips++
		}
	}
	t.Logf("%d flipped bits, all refused", flips)
}

// TestG30_DamageLeavesTheLogAlone opens a damaged log in earnest: it is
// refused, and not a byte of it changes.
func TestG30_DamageLeavesTheLogAlone(t *testing.T) {
	im := imageOf(t, history3(t))
	rng := rand.New(rand.NewPCG(1, 7))
	for range 300 {
		i := rng.IntN(len(im.files))
		bit := rng.IntN(len(im.files[i]) * 8)
		im.files[i][bit/8] ^= 1 << (bit % 8)
		fsys := im.fs(t)
		_, _, err := Open(fsys, testDir, testOptions)
		damageOf(t, err)
		if !reflect.DeepEqual(im.files, imageOf(t, fsys).files) {
			t.Fatal("a refused log was changed")
		}
		im.files[i][bit/8] ^= 1 << (bit % 8)
	}
}

// TestG30_WorseDamage damages a log in larger ways. Only what looks exactly
// like an unfinished last write may pass, and then as one: never with other
// content.
func TestG30_WorseDamage(t *testing.T) {
	im := imageOf(t, history3(t))
	want, wantScan, err := im.read(t)
	must(t, err)
	rng := rand.New(rand.NewPCG(2, 9))
	last := len(im.files) - 1
	for range 30000 {
		i := rng.IntN(len(im.files))
		saved := bytes.Clone(im.files[i])
		hurt(rng, im, i)
		got, sc, err := im.read(t)
		switch {
		case err != nil:
			damageOf(t, err)
		case bytes.Equal(saved, im.files[i]):
		case i != last || sc.next >= wantScan.next:
			t.Fatalf("damage in segment %d went unnoticed", i)
		case reflect.DeepEqual(got, want):
			t.Fatal("the end of the log is gone and its content is not")
		case sc.next < wantScan.horizon:
			t.Fatal("cut more than the last frame, though it says what was synced")
		}
		im.files[i] = saved
	}
}

// hurt does to a segment what disks and people do.
func hurt(rng *rand.Rand, im *image, i int) {
	b := im.files[i]
	sector := rng.IntN(len(b)/sectorBytes) * sectorBytes
	s := b[sector : sector+sectorBytes]
	switch rng.IntN(7) {
	case 0: // some flipped bits close by
		for range 2 + rng.IntN(6) {
			s[rng.IntN(sectorBytes)] ^= 1 << rng.IntN(8)
		}
	case 1: // a lost sector
		clear(s)
	case 2: // a lost page
		clear(b[sector/4096*4096 : min(len(b), sector/4096*4096+4096)])
	case 3: // a sector of elsewhere
		from := im.files[rng.IntN(len(im.files))]
		at := rng.IntN(len(from)/sectorBytes) * sectorBytes
		copy(s, from[at:at+sectorBytes])
	case 4: // noise
		for n := 1 + rng.IntN(sectorBytes); n > 0; n-- {
			s[rng.IntN(sectorBytes)] = byte(rng.Uint32())
		}
	case 5: // all ones
		for j := range s {
			s[j] = 0xFF
		}
	case 6: // two sectors that changed places
		at := rng.IntN(len(b)/sectorBytes) * sectorBytes
		other := bytes.Clone(b[at : at+sectorBytes])
		copy(b[at:], s)
		copy(b[sector:], other)
	}
}

// TestG30_MissingSegmentIsFound takes away or shortens each segment.
func TestG30_MissingSegmentIsFound(t *testing.T) {
	fsys := history3(t)
	im := imageOf(t, fsys)
	want, _, err := im.read(t)
	must(t, err)
	// Nothing in the first is needed any more, so going on without it is right.
	got, _, err := im.without(0).read(t)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	_, _, err = im.without(1).read(t)
	if d := damageOf(t, err); !strings.Contains(d.Reason, im.names[1]) {
		t.Fatalf("%v does not name the missing segment", err)
	}
	less := im.without(0).without(0) // the third alone lacks entries of the second
	_, _, err = less.read(t)
	damageOf(t, err)
	for i, b := range im.files {
		for n := range len(b) {
			im.files[i] = b[:n]
			_, _, err := im.read(t)
			damageOf(t, err)
		}
		im.files[i] = append(slices.Clone(b), b...)
		_, _, err := im.read(t)
		damageOf(t, err)
		im.files[i] = b
	}
}

// TestG30_TornTailIsCut leaves of the last frame only its first n bytes, for
// every n: the log opens with exactly what came before, says what it cut, and
// goes on.
func TestG30_TornTailIsCut(t *testing.T) {
	fsys := history3(t).Clone()
	l, rec := open(t, fsys)
	before := rec.Groups
	must(t, l.Append(Batch{Group: 1, Entries: entries(12, 4, 250, 2), HardState: HardState{3, 2, 12}}))
	file := join(testDir, l.cur().name)
	end := l.cur().offset(l.next)
	start := end - int64(len(l.enc.buf))
	full, err := vfs.ReadFile(fsys, file)
	must(t, err)
	if end-start < 2*sectorBytes {
		t.Fatal("the frame is too short for this test")
	}
	im := imageOf(t, fsys)
	last := len(im.files) - 1
	for n := start; n < end; n++ {
		im.files[last] = slices.Concat(full[:n], make([]byte, int64(len(full))-n))
		cut := im.fs(t)
		l, rec, err := Open(cut, testDir, testOptions)
		if err != nil {
			t.Fatalf("torn after %d bytes: %v", n-start, err)
		}
		if !reflect.DeepEqual(before, rec.Groups) {
			t.Fatalf("torn after %d bytes: %s", n-start, cmp.Diff(before, rec.Groups))
		}
		wantCut := (n - start + sectorBytes - 1) / sectorBytes * sectorBytes
		if rec.Cut != wantCut || (rec.Cut > 0 && (rec.CutFile != file || rec.CutOffset != start)) {
			t.Fatalf("torn after %d bytes: cut %d at %d of %s, want %d at %d of %s", n-start, rec.Cut, rec.CutOffset, rec.CutFile, wantCut, start, file)
		}
		must(t, l.Append(Batch{Group: 1, Entries: entries(12, 1, 1, 3), HardState: HardState{3, 3, 12}}))
		must(t, l.Close())
		_, rec = open(t, cut)
		if rec.Cut != 0 || rec.Groups[1].HardState != (HardState{3, 3, 12}) {
			t.Fatalf("torn after %d bytes: after going on the log says %+v", n-start, rec)
		}
	}
}

// TestG30_FlipInATornLogNeverChangesIt flips every bit of a log whose last
// write was cut off, in the segment where that is: it is refused, or the flip
// was in what is cut anyway.
func TestG30_FlipInATornLogNeverChangesIt(t *testing.T) {
	fsys := history3(t)
	l, rec := open(t, fsys.Clone())
	before := rec.Groups
	must(t, l.Append(Batch{Group: 1, Entries: entries(12, 4, 280, 2)}))
	im := imageOf(t, l.fs)
	last := len(im.files) - 1
	start := l.cur().offset(l.next) - int64(len(l.enc.buf))
	clear(im.files[last][start+sectorBytes : start+2*sectorBytes])       // the second sector did not arrive
	clear(im.files[last][start+2*sectorBytes+100 : start+3*sectorBytes]) // and of the third only the front
	got, _, err := im.read(t)
	must(t, err)
	if diff := cmp.Diff(before, got); diff != "" {
		t.Fatal(diff)
	}
	b, passed, half := im.files[last], 0, start+2*sectorBytes
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		got, _, err := im.read(t)
		b[bit/8] ^= 1 << (bit % 8)
		if err != nil {
			damageOf(t, err)
			continue
		}
		passed++
		if off := int64(bit / 8); off < half || off >= half+sectorBytes || !reflect.DeepEqual(before, got) {
			t.Fatalf("bit %d flipped unnoticed", bit)
		}
	}
	if passed == 0 {
		t.Fatal("no flip passed, though a half-written sector cannot be checked")
	}
}

// TestG30_WhatWasSyncedIsNotCut loses a sector of every frame but the last:
// the horizon in the frames behind it shows that it had been there.
func TestG30_WhatWasSyncedIsNotCut(t *testing.T) {
	im := imageOf(t, history3(t))
	_, sc, err := im.read(t)
	must(t, err)
	for i, b := range im.files {
		for off := int64(0); off < int64(len(b)); off += sectorBytes {
			seq := sc.segs[i].first + uint64(off/sectorBytes)
			if seq >= sc.horizon || bytes.Equal(b[off:off+sectorBytes], blankSector[:]) {
				continue
			}
			saved := bytes.Clone(b[off : off+sectorBytes])
			clear(b[off : off+sectorBytes])
			_, _, err := im.read(t)
			copy(b[off:], saved)
			if d := damageOf(t, err); d.File != join(testDir, im.names[i]) || d.Offset != off {
				t.Fatalf("sector at %d of %s was reported as %v", off, im.names[i], err)
			}
		}
	}
}

// TestG30_CloseProtectsTheLastBatch loses each sector of the last batch of a
// log that was closed in order.
func TestG30_CloseProtectsTheLastBatch(t *testing.T) {
	fsys := vfs.NewMem()
	l, _ := open(t, fsys)
	from := l.cur().offset(l.next)
	must(t, l.Append(Batch{Entries: entries(1, 4, 300, 1), HardState: HardState{1, 1, 1}}))
	to := l.cur().offset(l.next)
	must(t, l.Close())
	im := imageOf(t, fsys)
	for off := from; off < to; off += sectorBytes {
		saved := bytes.Clone(im.files[0][off : off+sectorBytes])
		clear(im.files[0][off : off+sectorBytes])
		_, _, err := im.read(t)
		copy(im.files[0][off:], saved)
		if d := damageOf(t, err); d.Offset != off {
			t.Fatalf("lost sector at %d: %v", off, err)
		}
	}
}

// FuzzScan gives the scanner any bytes as a segment: it never panics, and what
// it accepts it accepts again, the same, after a real opening.
func FuzzScan(f *testing.F) {
	for _, b := range imageOf(f, history3(f)).files {
		f.Add(b, uint16(0), []byte{})
		f.Add(b, uint16(3*sectorBytes+20), []byte("changed"))
	}
	f.Fuzz(func(t *testing.T, b []byte, at uint16, change []byte) {
		b = append(b, make([]byte, max(0, MinSegmentBytes-len(b)))...)[:MinSegmentBytes]
		copy(b[int(at)%len(b):], change)
		reseal(b)
		im := &image{names: []string{segmentName(1)}, files: [][]byte{b}}
		want, _, err := im.read(t)
		if incumbent.KindOf(err) == incumbent.Invalid {
			return // whole, and of another format
		}
		if err != nil {
			damageOf(t, err)
			return
		}
		l, rec, err := Open(im.fs(t), testDir, Options{SegmentBytes: MinSegmentBytes})
		if err != nil {
			t.Fatalf("read but not opened: %v", err)
		}
		if diff := cmp.Diff(want, rec.Groups); diff != "" {
			t.Fatal(diff)
		}
		must(t, l.Close())
	})
}

// reseal makes the checksums of written sectors right, so that the fuzzer gets
// past them.
func reseal(b []byte) {
	for off := 0; off < len(b); off += sectorBytes {
		if s := b[off : off+sectorBytes]; s[0] == headMark && s[sectorBytes-1] == tailMark {
			putSum(s)
		}
	}
}

// FuzzRecords gives the decoder of records any payload.
func FuzzRecords(f *testing.F) {
	var e encoder
	e.begin(5, 6)
	e.meta(Meta{Member: 1})
	e.entry(3, &Entry{Index: 1, Term: 2, Data: []byte("data")})
	e.hardState(3, HardState{1, 2, 3})
	e.snapshot(3, SnapshotMark{Index: 1, File: "x"}, true)
	e.group(3, group{last: 4})
	e.segment(segmentHead{first: 1})
	payload := bytes.Clone(e.buf[payloadAt : payloadAt+payloadBytes])
	f.Add(payload, uint32(5), uint64(6))
	f.Fuzz(func(t *testing.T, payload []byte, chain uint32, rec uint64) {
		d := decoder{payload: payload, chain: chain, rec: rec}
		for d.more() {
			at := d.at
			r, reason := d.next()
			if reason != "" {
				return
			}
			if d.at <= at || describe(r) == "" {
				t.Fatal("the decoder stands still")
			}
		}
	})
}

// FuzzBodies gives the decoders of bodies any bytes: what they accept they
// encode again to the same.
func FuzzBodies(f *testing.F) {
	f.Add(make([]byte, groupBytes))
	f.Add(make([]byte, hardStateBytes))
	f.Add(make([]byte, segmentBytes))
	f.Add(make([]byte, metaBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		var e encoder
		check := func(ok bool, encode func()) {
			if !ok {
				return
			}
			e.begin(0, 0)
			encode()
			if got := payloadOf(e.buf)[recordBytes : recordBytes+len(b)]; !bytes.Equal(got, b) {
				t.Fatalf("%x became %x", b, got)
			}
		}
		en, ok := decodeEntry(b)
		check(ok, func() { e.entry(1, &en) })
		hs, ok := decodeHardState(b)
		check(ok, func() { e.hardState(1, hs) })
		m, replaces, ok := decodeSnapshot(b)
		check(ok, func() { e.snapshot(1, m, replaces) })
		g, ok := decodeGroup(b)
		check(ok, func() { e.group(1, g) })
		meta, ok := decodeMeta(b)
		check(ok, func() { e.meta(meta) })
		h, ok := decodeSegment(b)
		check(ok, func() { e.segment(h) })
	})
}

func payloadOf(frame []byte) []byte {
	var p []byte
	for off := 0; off < len(frame); off += sectorBytes {
		p = append(p, frame[off+payloadAt:off+sumAt]...)
	}
	return p
}

func TestDamageIsFatal(t *testing.T) {
	err := corrupt("f", 3, "x")
	if k := incumbent.KindOf(err); !k.Fatal() {
		t.Fatalf("%v is not fatal", k)
	}
}
