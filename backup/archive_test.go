package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/engine"
)

// What tools for Consul's snapshots look at is there and right, and a restore takes what
// it takes of a backup.
func TestG30_AnArchiveIsABackup(t *testing.T) {
	v := engine.NewState().View()
	var archive, plain bytes.Buffer
	of := Info{Cluster: strings.Repeat("0", 32), Member: "n1"}
	if err := WriteArchive(context.Background(), &archive, v, of); err != nil {
		t.Fatal(err)
	}
	if err := Write(context.Background(), &plain, v, of); err != nil {
		t.Fatal(err)
	}
	parts := map[string][]byte{}
	zip, err := gzip.NewReader(bytes.NewReader(archive.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(zip); ; {
		head, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if parts[head.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
	var meta archiveMeta
	if err := json.Unmarshal(parts["meta.json"], &meta); err != nil || meta.Size != int64(plain.Len()) {
		t.Errorf("meta.json: %s, %v", parts["meta.json"], err)
	}
	if !bytes.Equal(parts[archivedBackup], plain.Bytes()) {
		t.Error("it holds another backup")
	}
	sums := bufio.NewScanner(bytes.NewReader(parts["SHA256SUMS"]))
	n := 0
	for ; sums.Scan(); n++ {
		hash, name, _ := strings.Cut(sums.Text(), "  ")
		if got := sha256.Sum256(parts[name]); hash != hex.EncodeToString(got[:]) {
			t.Errorf("%s has another hash", name)
		}
	}
	if n != 2 {
		t.Errorf("%d hashes", n)
	}
	if _, _, err := Verify(bytes.NewReader(archive.Bytes()), "a.tgz"); err != nil {
		t.Error(err)
	}
	for cut := range archive.Len() / 2 {
		if _, _, err := Verify(bytes.NewReader(archive.Bytes()[:cut]), "a.tgz"); err == nil {
			t.Fatalf("its first %d bytes are taken for all", cut)
		}
	}
	var other bytes.Buffer
	w := gzip.NewWriter(&other)
	_, _ = w.Write([]byte("nothing"))
	_ = w.Close()
	if _, err := Open(&other, "b.gz"); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("what is compressed and no archive: %v", err)
	}
}
