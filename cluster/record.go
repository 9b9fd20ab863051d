package cluster

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
	"github.com/incumbent-dev/incumbent/node"
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
	// restoring: a backup is being brought into the directory; it is no member yet.
	restoring stage = "restoring"
	// member: the log was opened under this id. Without its log such a member
	// may have forgotten how it voted, and must not come back under its id.
	member stage = "member"
)

// Record is what member.json holds. It is written whole, under another name
// first, so that it is always of one piece.
type Record struct {
	Version   int      `json:"version"`
	Stage     stage    `json:"stage"`
	Cluster   string   `json:"cluster,omitempty"` // 32 hexadecimal digits
	ID        string   `json:"id"`                // 16 hexadecimal digits
	Name      string   `json:"name"`
	Clustered bool     `json:"clustered"`             // made by init or join: it listens for peers without being told
	Secret    []byte   `json:"secret,omitempty"`      // by which members know each other; of one that has joined and not come up yet: none
	Next      []byte   `json:"next_secret,omitempty"` // that takes its place
	Token     string   `json:"token,omitempty"`       // by which it joined, while it has no secret
	Epoch     uint64   `json:"epoch,omitempty"`       // of its key: see [trust.Root]
	Hosts     []string `json:"hosts,omitempty"`       // names and addresses in its certificate, besides those it listens on
	// Differs is why the member stopped for good, if it has: its state was not that of a
	// majority.
	Differs string `json:"differs,omitempty"`
	// Split is why it grants nothing, if it does not: no state had a majority.
	Split string `json:"split,omitempty"`
	// Members are those last known, so that a restart can dial before it has
	// caught up.
	Members []KnownMember `json:"members,omitempty"`
}

// KnownMember is where another member was last.
type KnownMember struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Peer string `json:"peer"`
	URL  string `json:"url,omitempty"`
}

// FormatID is how a member's id is written: 16 hexadecimal digits.
func FormatID(id uint64) string { return fmt.Sprintf("%016x", id) }

// ParseID reads a member's id; 0 if it is none.
func ParseID(s string) uint64 {
	id, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 {
		return 0
	}
	return id
}

// ParseClusterID reads a cluster's id; ok is false if it is none.
func ParseClusterID(s string) (id [16]byte, ok bool) {
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

// errRestoring is the cause of the error of [ReadRecord] for a directory into which a
// restore was begun and not finished.
var errRestoring = errors.New("a backup was being restored into it, and that was not finished")

// ReadRecord reads a directory's record; nil without an error if it has none. The
// error is Conflict, with the cause errRestoring, while a restore is not finished.
func ReadRecord(dir string) (*Record, error) {
	name := filepath.Join(dir, recordFile)
	text, err := vfs.ReadFile(vfs.OS{}, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	var r Record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s: %w", name, err)
	}
	_, known := ParseClusterID(r.Cluster)
	switch {
	case r.Stage == restoring && r.Version <= recordVersion:
		return nil, incumbent.Errorf(incumbent.Conflict, "%s: %w", dir, errRestoring).
			WithHint("run 'incumbent backup restore' on it again, or empty the directory")
	case r.Version > recordVersion:
		return nil, incumbent.Errorf(incumbent.Invalid, "%s: written in version %d, this binary knows %d", name, r.Version, recordVersion).
			WithHint("start a newer binary")
	case ParseID(r.ID) == 0 || r.Name == "" || r.Stage != joining && (!known || len(r.Secret) != ca.SecretBytes && (r.Token == "" || len(r.Secret) > 0)):
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s: a part of it is missing", name)
	case r.Stage != joining && r.Stage != joined && r.Stage != member:
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s: stage %q is none", name, r.Stage)
	}
	return &r, nil
}

// Write makes the record durable.
func (r *Record) Write(dir string) error {
	r.Version = recordVersion
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return incumbent.Errorf(incumbent.Internal, "%s: %w", recordFile, err)
	}
	name := filepath.Join(dir, recordFile)
	if err := vfs.WriteFile(vfs.OS{}, name, append(text, '\n')); err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "%s: %w", name, err)
	}
	return nil
}

// Joins reports whether the cluster may not know the member yet: it needs its token.
func (r *Record) Joins() bool { return r.Stage == joining }

// hasLog reports whether the directory holds the log of a member. One that cannot be
// looked at counts: opening it says why.
func hasLog(dir string) bool {
	found, err := node.HasLog(vfs.OS{}, dir)
	return found || err != nil
}

// checkLog refuses a member whose log is gone while its record is still there:
// it may have forgotten what it promised, so it may not vote as who it was.
func (r *Record) checkLog(dir string) error {
	if r.Stage != member || hasLog(dir) {
		return nil
	}
	return incumbent.Errorf(incumbent.Corrupt, "%s: the log of member %s is gone", dir, r.Name).
		WithHint("empty the data directory and start with --join-file FILE: the member comes back under a new id; 'incumbent cluster token NAME' on another member prints a token")
}

// joins returns who a member is that the cluster has taken in and that has no log
// yet; nil for any other, nil too.
func (r *Record) joins() *node.Identity {
	if r == nil || r.Stage != joined {
		return nil
	}
	cluster, _ := ParseClusterID(r.Cluster)
	return &node.Identity{Cluster: cluster, Member: ParseID(r.ID)}
}

// adopt brings a record, nil if there is none yet, and the log that was opened
// together, and returns what is recorded from then on. clustered: the member listens
// for others.
func (r *Record) adopt(dir, name string, st node.Status, clustered bool) (*Record, error) {
	if r == nil {
		r = newRecord(st, name)
		r.Clustered = clustered
		return r, r.Write(dir)
	}
	if r.ID != FormatID(st.Member) || r.Cluster != hex.EncodeToString(st.Cluster[:]) {
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s says member %s of cluster %s, the log is of member %s of cluster %x",
			filepath.Join(dir, recordFile), r.ID, r.Cluster, FormatID(st.Member), st.Cluster)
	}
	if r.Stage == member {
		return r, nil
	}
	r.Stage = member
	return r, r.Write(dir)
}

// kept is what member.json says. It never changes.
func (c *Cluster) kept() *Record {
	c.recordMu.Lock()
	defer c.recordMu.Unlock()
	return c.record
}

// rewrite changes member.json, unless change reports that there is nothing to.
func (c *Cluster) rewrite(change func(*Record) bool) error {
	c.recordMu.Lock()
	defer c.recordMu.Unlock()
	next := *c.record
	if !change(&next) {
		return nil
	}
	if err := next.Write(c.cfg.DataDir); err != nil {
		return err
	}
	c.record = &next
	return nil
}
