package health

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
)

// memberOf is the member that runs a check while those are there that are given: the
// one with which it was registered, else the one of them for which a hash of both is
// greatest (rendezvous hashing, Thaler and Ravishankar 1996): what one of them leaves
// is spread over the others, and nothing else moves. 0: nobody runs it.
func memberOf(c *Check, members []uint64) uint64 {
	if slices.Contains(members, c.Member) {
		return c.Member
	}
	var best, most uint64
	for _, m := range members {
		if w := weight(c.Key, m); best == 0 || w > most || w == most && m > best {
			best, most = m, w
		}
	}
	return best
}

// weight is the same on every member.
func weight(k Key, member uint64) uint64 {
	h := fnv.New64a()
	for _, text := range [...]string{k.Namespace, k.Node, k.ID} {
		h.Write([]byte(text))
		h.Write([]byte{0})
	}
	h.Write(binary.LittleEndian.AppendUint64(nil, member))
	// FNV leaves the last bytes in the low bits: spread them (the finalizer of MurmurHash3).
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
