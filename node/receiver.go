package node

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// receiver writes the file that is being received. The file worker owns it.
type receiver struct {
	cfg    *Config
	folder snapshotFolder
	files  *fileWorker

	file     vfs.File         // nil: nothing is being received
	mark     wal.SnapshotMark // of it, with the name it will get
	term     uint64           // of the leader that sends it
	began    time.Time
	offset   int64 // bytes that are there
	fits     bool  // the header among them is not one that this member refuses
	unsynced int64
	sum      hash.Hash // of them
}

func (r *receiver) part() string { return r.mark.File + partSuffix }

// take puts a piece in its place. It returns the answer to it, nil for none;
// the file if it is whole, verified and durable; and what is fatal.
func (r *receiver) take(c *Chunk) (*Taken, *received, error) {
	if err := r.choose(c); err != nil {
		return r.failed(err)
	}
	if c.Offset == r.offset {
		if err := r.write(c.Data); err != nil {
			return r.failed(err)
		}
	}
	if err := r.refuseEarly(c); err != nil {
		return r.failed(err)
	}
	tk := &Taken{Offset: r.offset}
	if r.offset < r.mark.Bytes {
		return tk, nil, nil
	}
	whole := &received{mark: r.mark, raft: c.Raft, began: r.began}
	if err := r.finish(c); err != nil {
		return r.failed(err)
	}
	return tk, whole, nil
}

// choose makes c's file the one that is received, if it is not. Of two, the one
// of the later leader counts, and of one leader's the newer one.
func (r *receiver) choose(c *Chunk) error {
	if r.file != nil {
		if r.mark.Index == c.Index && r.mark.Term == c.Term && r.mark.Checksum == c.Checksum && r.mark.Bytes == c.Bytes {
			r.term = max(r.term, c.Raft.GetTerm())
			return nil
		}
		if term := c.Raft.GetTerm(); term < r.term || term == r.term && c.Index <= r.mark.Index {
			return errOtherFile
		}
		if err := r.remove(); err != nil {
			return err
		}
	}
	return r.begin(c)
}

// errOtherFile says that another file is being received.
var errOtherFile = errors.New("another snapshot is being received")

// unfit says why a snapshot cannot be taken, without harm to this member.
type unfit string

// Error returns the reason.
func (u unfit) Error() string { return string(u) }

// begin opens the file for a snapshot. What an earlier life has received of it
// is read again for its checksum.
func (r *receiver) begin(c *Chunk) error {
	r.mark = wal.SnapshotMark{Index: c.Index, Term: c.Term, Bytes: c.Bytes, Checksum: c.Checksum}
	r.mark.File = r.folder.receivedName(r.mark)
	r.term, r.began = c.Raft.GetTerm(), r.cfg.Clock.Now()
	r.offset, r.unsynced, r.sum = 0, 0, sha256.New()
	r.folder.kept.hold(r.part(), r.mark.File)
	if err := r.folder.sweep(); err != nil { // the beginning of another file makes room
		return err
	}
	f, err := r.openPart()
	if err != nil {
		return err
	}
	r.file = f
	r.files.opened(f)
	if err := r.resume(); err != nil {
		return err
	}
	_, err = r.cfg.roomForSnapshot(r.folder.dir, r.mark.Bytes-r.offset)
	return err
}

// openPart opens what there is of the file, or makes it.
func (r *receiver) openPart() (vfs.File, error) {
	path := r.folder.path(r.part())
	f, err := r.cfg.FS.OpenWrite(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r.cfg.FS.Create(path)
	}
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err == nil && size <= r.mark.Bytes {
		return f, nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return r.cfg.FS.Create(path)
}

// resume reads what is there. It may be wrong after a loss of power: then the
// checksum of the whole tells, and all is sent again.
func (r *receiver) resume() error {
	n, err := io.Copy(r.sum, io.NewSectionReader(r.file, 0, r.mark.Bytes))
	r.offset, r.unsynced = n, n
	return err
}

func (r *receiver) write(data []byte) error {
	if _, err := r.file.WriteAt(data, r.offset); err != nil {
		return err
	}
	r.sum.Write(data) // never fails
	r.offset += int64(len(data))
	r.unsynced += int64(len(data))
	if r.unsynced < snapshotSyncBytes {
		return nil
	}
	r.unsynced = 0
	return r.file.Sync()
}

// finish verifies the whole file and makes it durable under its name.
func (r *receiver) finish(c *Chunk) error {
	if [sha256.Size]byte(r.sum.Sum(nil)) != r.mark.Checksum {
		return unfit("checksum does not match")
	}
	if err := r.checkHeader(c); err != nil {
		return err
	}
	if err := r.file.Sync(); err != nil {
		return err
	}
	if err := r.files.closed(r.file); err != nil {
		return err
	}
	if err := r.cfg.FS.Rename(r.folder.path(r.part()), r.folder.path(r.mark.File)); err != nil {
		return err
	}
	if err := r.folder.syncDir(); err != nil {
		return err
	}
	// The name stays held until the snapshot is restored, or is of no use.
	r.folder.kept.letGo(r.part())
	r.forget()
	return nil
}

// refuseEarly looks at the header as soon as it is there: what this member must refuse, as
// what a newer binary wrote, is not sent whole first. One that does not read is damaged: the
// checksum of the whole tells, and has the sender look at its file.
func (r *receiver) refuseEarly(c *Chunk) error {
	if r.fits || r.offset < min(MaxChunkBytes, r.mark.Bytes) {
		return nil
	}
	r.fits = true
	if _, err := newSnapshotReader(io.NewSectionReader(r.file, 0, r.offset), r.part()); incumbent.KindOf(err) == incumbent.Corrupt {
		return nil
	}
	return r.checkHeader(c)
}

// checkHeader compares what the file says of itself with what raft says of it.
func (r *receiver) checkHeader(c *Chunk) error {
	reader, err := newSnapshotReader(io.NewSectionReader(r.file, 0, r.mark.Bytes), r.part())
	if err == nil {
		err = checkHeader(*r.cfg, reader)
	}
	if e := (*incumbent.Error)(nil); errors.As(err, &e) {
		return unfit(err.Error())
	}
	if err != nil {
		return err
	}
	meta := &reader.Header.Meta
	if meta.Index != c.Index || meta.Term != c.Term {
		return unfit(fmt.Sprintf("file covers index %d of term %d, the leader says %d of term %d", meta.Index, meta.Term, c.Index, c.Term))
	}
	if err := meta.ConfState.Equivalent(c.Raft.GetSnapshot().GetMetadata().GetConfState()); err != nil {
		return unfit("file has other members than the leader says")
	}
	return nil
}

// failed gives the file up and says what becomes of err.
func (r *receiver) failed(err error) (*Taken, *received, error) {
	if errors.Is(err, errOtherFile) {
		return nil, nil, nil
	}
	// After a failed sync nobody knows what the disk has of the file, and it would
	// look whole at the next start: it must go in any case.
	offset := r.offset
	rerr := r.remove()
	reason, ok := err.(unfit) //nolint:errorlint // of our own, never wrapped
	if !ok && !vfs.IsNoSpace(err) {
		return nil, nil, fatal("receive a snapshot", err)
	}
	if rerr != nil {
		return nil, nil, fatal("remove a snapshot that was being received", rerr)
	}
	if !ok {
		reason = unfit(err.Error())
	}
	return &Taken{Offset: offset, Failed: string(reason)}, nil, nil
}

// remove forgets the file that is being received, and removes it.
func (r *receiver) remove() error {
	if r.mark.Index == 0 {
		return nil
	}
	var err error
	if r.file != nil {
		err = r.files.closed(r.file)
	}
	r.folder.kept.letGo(r.part(), r.mark.File)
	r.forget()
	return errors.Join(err, r.folder.sweep())
}

func (r *receiver) forget() {
	*r = receiver{cfg: r.cfg, folder: r.folder, files: r.files}
}

// giveUp removes the file if entries have overtaken it.
func (r *receiver) giveUp(index uint64) error {
	if r.mark.Index > index {
		return nil
	}
	if err := r.remove(); err != nil {
		return fatal("remove a snapshot that was being received", err)
	}
	return nil
}
