package vfs

import "io"

// Op names a call of [FS] or [File].
type Op uint8

// The calls that [Inject] asks about.
const (
	OpCreate Op = iota
	OpOpen      // Open and OpenWrite
	OpRead      // Read and ReadAt
	OpWrite     // Write and WriteAt
	OpSync
	OpPreallocate
	OpRename // asked for the old name
	OpRemove
	OpMkdir
	OpList
	OpSyncDir
	OpSize // of a name or an open file
	OpFree
	OpLock
)

// String returns the name of the call.
func (o Op) String() string {
	names := [...]string{
		"create", "open", "read", "write", "sync", "preallocate", "rename", "remove",
		"mkdir", "list", "syncdir", "size", "free", "lock",
	}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

// Call is one call about to be made.
type Call struct {
	Op    Op
	Name  string
	Bytes int64 // to read, write or preallocate
}

// Fault is what happens instead of the call; one without Err lets it pass. A
// write with a fault first writes Bytes of its bytes, so that with
// io.ErrShortWrite it is a short write, with ENOSPC a disk that filled up.
type Fault struct {
	Err   error
	Bytes int64
}

// Inject returns fsys with decide asked before every call. decide may run on
// several goroutines at once, as the calls do.
func Inject(fsys FS, decide func(Call) Fault) FS {
	return &injected{FS: fsys, decide: decide}
}

type injected struct {
	FS
	decide func(Call) Fault
}

func (i *injected) ask(op Op, name string) error {
	return i.decide(Call{Op: op, Name: name}).Err
}

func (i *injected) file(f File, err error, name string) (File, error) {
	if err != nil {
		return nil, err
	}
	return &injectedFile{File: f, fs: i, name: name}, nil
}

func (i *injected) Create(name string) (File, error) {
	if err := i.ask(OpCreate, name); err != nil {
		return nil, err
	}
	f, err := i.FS.Create(name)
	return i.file(f, err, name)
}

func (i *injected) Open(name string) (File, error) {
	if err := i.ask(OpOpen, name); err != nil {
		return nil, err
	}
	f, err := i.FS.Open(name)
	return i.file(f, err, name)
}

func (i *injected) OpenWrite(name string) (File, error) {
	if err := i.ask(OpOpen, name); err != nil {
		return nil, err
	}
	f, err := i.FS.OpenWrite(name)
	return i.file(f, err, name)
}

func (i *injected) Rename(from, to string) error {
	if err := i.ask(OpRename, from); err != nil {
		return err
	}
	return i.FS.Rename(from, to)
}

func (i *injected) Remove(name string) error {
	if err := i.ask(OpRemove, name); err != nil {
		return err
	}
	return i.FS.Remove(name)
}

func (i *injected) Mkdir(name string) error {
	if err := i.ask(OpMkdir, name); err != nil {
		return err
	}
	return i.FS.Mkdir(name)
}

func (i *injected) List(dir string) ([]string, error) {
	if err := i.ask(OpList, dir); err != nil {
		return nil, err
	}
	return i.FS.List(dir)
}

func (i *injected) SyncDir(dir string) error {
	if err := i.ask(OpSyncDir, dir); err != nil {
		return err
	}
	return i.FS.SyncDir(dir)
}

func (i *injected) Size(name string) (int64, error) {
	if err := i.ask(OpSize, name); err != nil {
		return 0, err
	}
	return i.FS.Size(name)
}

func (i *injected) Free(dir string) (int64, error) {
	if err := i.ask(OpFree, dir); err != nil {
		return 0, err
	}
	return i.FS.Free(dir)
}

func (i *injected) Lock(name string) (io.Closer, error) {
	if err := i.ask(OpLock, name); err != nil {
		return nil, err
	}
	return i.FS.Lock(name)
}

type injectedFile struct {
	File
	fs   *injected
	name string
}

func (f *injectedFile) Read(p []byte) (int, error) {
	if fault := f.fs.decide(Call{OpRead, f.name, int64(len(p))}); fault.Err != nil {
		return 0, fault.Err
	}
	return f.File.Read(p)
}

func (f *injectedFile) ReadAt(p []byte, off int64) (int, error) {
	if fault := f.fs.decide(Call{OpRead, f.name, int64(len(p))}); fault.Err != nil {
		return 0, fault.Err
	}
	return f.File.ReadAt(p, off)
}

func (f *injectedFile) Write(p []byte) (int, error) {
	return f.write(p, f.File.Write)
}

func (f *injectedFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

// write asks, and on a fault writes only as much as it says.
func (f *injectedFile) write(p []byte, write func([]byte) (int, error)) (int, error) {
	fault := f.fs.decide(Call{OpWrite, f.name, int64(len(p))})
	if fault.Err == nil {
		return write(p)
	}
	n, err := write(p[:min(fault.Bytes, int64(len(p)))])
	if err != nil {
		return n, err
	}
	return n, fault.Err
}

func (f *injectedFile) Sync() error {
	if err := f.fs.ask(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *injectedFile) Size() (int64, error) {
	if err := f.fs.ask(OpSize, f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *injectedFile) Preallocate(size int64) error {
	if fault := f.fs.decide(Call{OpPreallocate, f.name, size}); fault.Err != nil {
		return fault.Err
	}
	return f.File.Preallocate(size)
}
