package wal

// Limits of the log. All are bytes unless the name says otherwise.
const (
	// DefaultSegmentBytes is the length of a segment file: large enough that
	// making the next one is rare, small enough that disk space comes back soon
	// after a snapshot.
	DefaultSegmentBytes = 64 << 20
	MinSegmentBytes     = 4 << 10
	MaxSegmentBytes     = 1 << 30

	// MaxFrameBytes is the largest frame, as written. It bounds the encoding
	// buffer and the one write that a batch costs; a larger batch takes several.
	MaxFrameBytes = 4 << 20

	// MaxSnapshotName is the length of a snapshot's file name.
	MaxSnapshotName = 255

	// spares is how many segments [Log.Prepare] keeps ready: one to go on with
	// and one in reserve for when the disk is full.
	spares = 2

	// maxGroupBytes is what one group takes in the checkpoint at the start of a
	// segment, at most.
	maxGroupBytes = recordBytes + groupBytes + MaxSnapshotName

	// wipeBytes is written at a time when a segment is filled with zeros.
	wipeBytes = 1 << 20
)

// A checkpoint takes at most a quarter of a segment, its frame one sector more
// for the records about the segment itself. The last sector is kept for the
// record of an orderly end, and an eighth, or some, before it for what must be
// written though the disk is full: openings and snapshot marks. The rest is
// for batches.
const (
	checkpointShare = 4
	headroomShare   = 8
	headroomSectors = 32
	closeSectors    = 1
)

// tailSectors is how much of a segment batches leave free.
func tailSectors(sectors uint64) uint64 {
	return closeSectors + min(headroomSectors, sectors/headroomShare)
}

// headSectors is the most sectors that the first frame of a segment takes.
func headSectors(sectors uint64) uint64 { return sectors/checkpointShare + 1 }

// maxGroups is how many groups a log with such segments can hold.
func maxGroups(segmentBytes int64) int {
	return int(segmentBytes / sectorBytes / checkpointShare * payloadBytes / maxGroupBytes)
}

// frameSectors is the largest frame for which a fresh segment has room.
func frameSectors(segmentBytes int64) uint64 {
	sectors := uint64(segmentBytes / sectorBytes)
	return min(MaxFrameBytes/sectorBytes, sectors-headSectors(sectors)-tailSectors(sectors))
}
