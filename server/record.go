package server

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/vfs"
)

// recordFile is where a member keeps who it is and whom it knows.
const recordFile = "member.json"

// recordVersion is that of the file's form.
const recordVersion = 1

// stage is how far a data directory has come.
type stage string

const (
	// joining: an id was chosen; whether the cluster knows it yet is not known.
	joining stage = "joining"
	// joined: the cluster has taken the id in; the log does not exist yet.
	joined stage = "joined"
	// member: the log was opened under this id. Without its log such a member
	// may have forgotten how it voted, and must not come back under its id.
	member stage = "member"
)

// record is what member.json holds. It is written whole, under another name
// first, so that it is always of one piece.
type record struct {
	Version   int      `json:"version"`
	Stage     stage    `json:"stage"`
	Cluster   string   `json:"cluster,omitempty"` // 32 hexadecimal digits
	ID        string   `json:"id"`                // 16 hexadecimal digits
	Name      string   `json:"name"`
	Clustered bool     `json:"clustered"`       // made by init or join: it listens for peers without being told
	Secret    []byte   `json:"secret"`          // makes and checks join tokens
	Hosts     []string `json:"hosts,omitempty"` // names and addresses in its certificate, besides those it listens on
	// Members are those last known, so that a restart can dial before it has
	// caught up.
	Members []knownMember `json:"members,omitempty"`
}

// knownMember is where another member was last.
type knownMember struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Peer string `json:"peer"`
	URL  string `json:"url,omitempty"`
}

func idText(id uint64) string { return fmt.Sprintf("%016x", id) }

// parseID reads a member's id; 0 if it is none.
func parseID(s string) uint64 {
	id, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 {
		return 0
	}
	return id
}

// parseCluster reads a cluster's id; ok is false if it is none.
func parseCluster(s string) (id [16]byte, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	return [16]byte(b), true
}

// newMemberID returns a random id that is not 0.
func newMemberID() uint64 {
	for {
		var b [8]byte
		rand.Read(b[:])
		if id := binary.BigEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

// readRecord reads a directory's record; nil without an error if it has none.
func readRecord(fsys vfs.FS, dir string) (*record, error) {
	name := filepath.Join(dir, recordFile)
	text, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s: %w", name, err)
	}
	_, known := parseCluster(r.Cluster)
	switch {
	case r.Version > recordVersion:
		return nil, incumbent.Errorf(incumbent.Invalid, "%s: written in version %d, this binary knows %d", name, r.Version, recordVersion).
			WithHint("start a newer binary")
	case parseID(r.ID) == 0 || r.Name == "" || r.Stage != joining && (!known || len(r.Secret) != ca.SecretBytes):
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s: a part of it is missing", name)
	case r.Stage != joining && r.Stage != joined && r.Stage != member:
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s: stage %q is none", name, r.Stage)
	}
	return &r, nil
}

// write makes the record durable.
func (r *record) write(fsys vfs.FS, dir string) error {
	r.Version = recordVersion
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return incumbent.Errorf(incumbent.Internal, "%s: %w", recordFile, err)
	}
	name := filepath.Join(dir, recordFile)
	if err := vfs.WriteFile(fsys, name, append(text, '\n')); err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	return nil
}

// hasLog reports whether the directory holds the log of a member.
func hasLog(fsys vfs.FS, dir string) bool {
	names, err := fsys.List(filepath.Join(dir, "log"))
	return err == nil && len(names) > 0
}

// checkLog refuses a member whose log is gone while its record is still there:
// it may have forgotten what it promised, so it may not vote as who it was.
func (r *record) checkLog(fsys vfs.FS, dir string) error {
	if r.Stage != member || hasLog(fsys, dir) {
		return nil
	}
	return incumbent.Errorf(incumbent.Corrupt, "%s: the log of member %s is gone", dir, r.Name).
		WithHint("empty the data directory and start with --join TOKEN: the member comes back under a new id; 'incumbent cluster token' on another member prints a token")
}
