package consul

import "hash/crc32"

// The checksum of two texts in a row follows from their checksums and the length of
// the second: crc(ab) = crc(a)·x^(8·len b) + crc(b), of polynomials over GF(2) modulo
// that of IEEE 802.3, bits reflected as in hash/crc32 (Mark Adler, crc32_combine of
// zlib). So the checksum of a body follows from those of its runs.

const (
	crcOne = 1 << 31 // the polynomial 1
	crcX8  = 1 << 23 // x^8: one byte
)

// crcShift is x^(8·n): what a checksum is multiplied by when n bytes follow.
func crcShift(n int) uint32 {
	p, square := uint32(crcOne), uint32(crcX8)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			p = crcTimes(p, square)
		}
		square = crcTimes(square, square)
	}
	return p
}

// crcTimes multiplies two polynomials.
func crcTimes(a, b uint32) (p uint32) {
	for bit := uint32(crcOne); a != 0; bit >>= 1 {
		if a&bit != 0 {
			p ^= b
			a &^= bit
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crc32.IEEE
		}
	}
	return p
}

// crcJoin is the checksum of a text of checksum a and one of b behind it, where shift
// is [crcShift] of the length of the second.
func crcJoin(a, b, shift uint32) uint32 { return crcTimes(a, shift) ^ b }
