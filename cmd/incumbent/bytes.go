package main

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/incumbent-dev/incumbent/core/settings"
)

// byteSize is the value of a flag that is a number of bytes. It is one of pflag's int64
// that can be written with a unit, too.
type byteSize int64

// Set implements [pflag.Value].
func (b *byteSize) Set(text string) error {
	v, err := strconv.ParseInt(text, 0, 64) // as pflag reads numbers, 0x100000 or 1_048_576
	if err != nil {
		var ok bool
		if v, ok = settings.ParseBytes(text); !ok {
			return errors.New("it is no number of bytes, as 1048576 or 1MiB")
		}
	}
	*b = byteSize(v)
	return nil
}

// String implements [pflag.Value].
func (b *byteSize) String() string { return strconv.FormatInt(int64(*b), 10) }

// Type implements [pflag.Value].
func (b *byteSize) Type() string { return "int64" }

func bytesFlag(f *pflag.FlagSet, name string, value int64, usage string) {
	size := byteSize(value)
	f.Var(&size, name, usage)
}
