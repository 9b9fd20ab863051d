//go:build !unix

package server

import "math"

// descriptorLimit is not known here: accepting fails when there are none left.
func descriptorLimit() uint64 { return math.MaxUint64 }
