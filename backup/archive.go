package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// An archive is a backup as tools for Consul's snapshots take it: a gzipped tar of what
// they look at and the backup itself. [Open] reads it, too.
//
//	meta.json    index, size and whose it is
//	state.bin    the backup
//	SHA256SUMS   of the two
const archivedBackup = "state.bin"

// archiveMeta is meta.json.
type archiveMeta struct {
	Version            int
	ID                 string
	Index              uint64
	Term               uint64
	Peers              []byte
	Configuration      struct{ Servers []struct{} }
	ConfigurationIndex uint64
	Size               int64
}

// WriteArchive writes a backup of a state as an archive. It makes the backup twice: to
// find out how long it is, and to write it. Otherwise it is [Write].
func WriteArchive(ctx context.Context, w io.Writer, v *core.View, of Info) error {
	size, sum := &counted{w: io.Discard}, sha256.New()
	if err := Write(ctx, io.MultiWriter(size, sum), v, of); err != nil {
		return err
	}
	meta := archiveMeta{Version: 1, ID: of.Cluster + "-" + v.Index().String(), Index: uint64(v.Index()), Term: 1, Size: size.n}
	says, err := json.Marshal(meta)
	if err != nil {
		return incumbent.Errorf(incumbent.Internal, "meta.json: %w", err)
	}
	ofMeta := sha256.Sum256(says)
	sums := hex.EncodeToString(ofMeta[:]) + "  meta.json\n" + hex.EncodeToString(sum.Sum(nil)) + "  " + archivedBackup + "\n"
	zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	out := tar.NewWriter(zip)
	for _, part := range []struct {
		name  string
		size  int64
		write func(io.Writer) error
	}{
		{"meta.json", int64(len(says)), func(w io.Writer) error { _, err := w.Write(says); return err }},
		{archivedBackup, size.n, func(w io.Writer) error { return Write(ctx, w, v, of) }},
		{"SHA256SUMS", int64(len(sums)), func(w io.Writer) error { _, err := io.WriteString(w, sums); return err }},
	} {
		head := &tar.Header{Name: part.name, Mode: 0o600, Size: part.size, ModTime: of.At.UTC().Truncate(time.Second)}
		if err := out.WriteHeader(head); err != nil {
			return err
		}
		if err := part.write(out); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return zip.Close()
}

// counted counts what is written.
type counted struct {
	w io.Writer
	n int64
}

// Write implements [io.Writer].
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// unpacked returns the backup in an archive, and anything else as it is. An archive is
// known by how gzip begins.
func unpacked(r io.Reader, name string) (io.Reader, error) {
	var begins [2]byte
	n, err := io.ReadFull(r, begins[:])
	whole := io.MultiReader(bytes.NewReader(begins[:n]), r)
	if err != nil || begins != [2]byte{0x1f, 0x8b} {
		return whole, nil //nolint:nilerr // whoever reads on finds it again
	}
	none := func(err error) error {
		return incumbent.Errorf(incumbent.Invalid, "%s is compressed, and no archive of a backup: %w", name, err)
	}
	zip, err := gzip.NewReader(whole)
	if err != nil {
		return nil, none(err)
	}
	in := tar.NewReader(zip)
	for {
		head, err := in.Next()
		if err != nil {
			return nil, none(err)
		}
		if head.Name == archivedBackup {
			return in, nil
		}
	}
}
