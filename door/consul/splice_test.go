package consul

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func testFragment(key string, says int) *fragment {
	text, err := json.Marshal(map[string]string{"Key": key, "Says": strings.Repeat(fmt.Sprint(says, "<&>"), says%40)})
	if err != nil {
		panic(err)
	}
	return newFragment(key, nil, text)
}

func testKey(i int) string { return fmt.Sprintf("node-%05d", i) }

func testFragments(n int) (fs []*fragment) {
	for i := range n {
		fs = append(fs, testFragment(testKey(i), i))
	}
	return fs
}

// wholeOf is the list as nobody needs to splice it.
func wholeOf(fs []*fragment) []byte {
	var all []json.RawMessage
	for _, f := range fs {
		all = append(all, f.json)
	}
	if all == nil {
		return []byte("[]")
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return b
}

func gunzip(tb rapid.TB, b []byte) []byte {
	tb.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		tb.Fatal(err)
	}
	r.Multistream(false)
	out, err := io.ReadAll(r)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// What is joined of runs is what one would write and compress whole, whatever was added,
// changed and taken out before; runs stay within their bounds.
func TestAListOfRunsIsTheWholeList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := map[string]*fragment{}
		var runs []*run
		key := rapid.Custom(func(t *rapid.T) string { return testKey(rapid.IntRange(0, 400).Draw(t, "i")) })
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			for range rapid.IntRange(0, 120).Draw(t, "puts") {
				k := key.Draw(t, "put")
				list[k] = testFragment(k, rapid.IntRange(0, 1000).Draw(t, "says"))
			}
			for range rapid.IntRange(0, 80).Draw(t, "removals") {
				delete(list, key.Draw(t, "remove"))
			}
			fs := make([]*fragment, 0, len(list))
			for _, f := range list {
				fs = append(fs, f)
			}
			slices.SortFunc(fs, func(a, b *fragment) int { return strings.Compare(a.key, b.key) })
			runs = reruns(runs, fs)
			body, want := &spliced{runs: runs}, wholeOf(fs)
			if !bytes.Equal(body.JSON(), want) {
				t.Fatalf("%s, want %s", body.JSON(), want)
			}
			if body.size() != len(want) {
				t.Fatalf("%d bytes, want %d", body.size(), len(want))
			}
			if got := gunzip(t, body.Gzip()); !bytes.Equal(got, want) {
				t.Fatalf("unpacked: %s, want %s", got, want)
			}
			if fresh := (&spliced{runs: reruns(nil, fs)}).hash(); body.hash() != fresh {
				t.Fatal("another hash than of the same list made anew")
			}
			for i, r := range runs {
				if n := len(r.fragments); n == 0 || n > runMost || n < runLeast && i < len(runs)-1 {
					t.Fatalf("run %d of %d has %d fragments", i, len(runs), n)
				}
			}
		}
	})
}

// One that changes among many changes one run.
func TestAChangeMakesOneRunAnew(t *testing.T) {
	fs := testFragments(1000)
	was := reruns(nil, fs)
	anew := func(fs []*fragment) (n int) {
		for _, r := range reruns(was, fs) {
			if !slices.Contains(was, r) {
				n++
			}
		}
		return n
	}
	for _, at := range []int{0, 31, 32, 500, 999} {
		changed := slices.Clone(fs)
		changed[at] = testFragment(changed[at].key, 7)
		if n := anew(changed); n != 1 {
			t.Errorf("%d runs anew where %d changed, want 1", n, at)
		}
		if n := anew(slices.Delete(slices.Clone(fs), at, at+1)); n > 1 {
			t.Errorf("%d runs anew where %d is gone, want at most 1", n, at)
		}
		if n := anew(slices.Insert(slices.Clone(fs), at, testFragment(fs[at].key+"a", 7))); n != 1 {
			t.Errorf("%d runs anew where one came at %d, want 1", n, at)
		}
	}
	if n := anew(fs); n != 0 {
		t.Errorf("%d runs anew where nothing changed", n)
	}
}

func TestChecksumsJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOf(rapid.Byte()).Draw(t, "a"), rapid.SliceOf(rapid.Byte()).Draw(t, "b")
		got := crcJoin(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), crcShift(len(b)))
		if want := crc32.ChecksumIEEE(append(a, b...)); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
}

// BenchmarkFlap is what one changed instance of many costs until its bytes can be sent.
func BenchmarkFlap(b *testing.B) {
	for _, n := range []int{100, 1000, 5000} {
		for _, encoding := range []string{"plain", "gzip"} {
			b.Run(fmt.Sprintf("instances=%d/%s", n, encoding), func(b *testing.B) {
				fs := make([]*fragment, n)
				for i := range fs {
					fs[i] = instanceLike(i, 0)
				}
				runs := reruns(nil, fs)
				body := &spliced{runs: runs}
				body.Gzip()
				b.SetBytes(int64(body.size()))
				b.ReportAllocs()
				random := rand.New(rand.NewPCG(1, 2))
				for round := range b.N {
					i := random.IntN(n)
					fs = slices.Clone(fs)
					fs[i] = instanceLike(i, round)
					runs = reruns(runs, fs)
					body = &spliced{runs: runs}
					body.hash()
					if encoding == "gzip" {
						body.Gzip()
					} else {
						body.JSON()
					}
				}
			})
		}
	}
}

// instanceLike is a fragment of the size of an instance with two checks.
func instanceLike(i, round int) *fragment {
	key := testKey(i)
	text, err := json.Marshal(&entryJSON{
		Node:    &nodeJSON{ID: "7f4b7f0e-46b2-4f0b-9d4e-000000000000", Node: key, Address: fmt.Sprintf("10.0.%d.%d", i>>8, i&255), Datacenter: "dc1", ModifyIndex: uint64(i)},
		Service: &serviceJSON{ID: "web-" + key, Service: "web", Tags: []string{"v1", "primary"}, Port: 8080, ModifyIndex: uint64(i)},
		Checks: []*checkJSON{
			{Node: key, CheckID: "serfHealth", Name: "Serf Health Status", Status: "passing", Output: "Agent alive and reachable"},
			{Node: key, CheckID: "service:web-" + key, Name: "Service 'web' check", Status: []string{"passing", "critical"}[round&1], ServiceID: "web-" + key, ServiceName: "web", ModifyIndex: uint64(round)},
		},
	})
	if err != nil {
		panic(err)
	}
	return newFragment(key, nil, text)
}
