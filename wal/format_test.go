package wal

import (
	"errors"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// A log of another version is no damage: it is refused as a matter of
// configuration, with what to do, and is left as it is.
func TestALogOfAnotherFormatIsRefused(t *testing.T) {
	for format, hint := range map[uint32]string{
		FormatVersion - 1: "the version of incumbent that wrote it; this one reads neither its files nor its backups",
		FormatVersion + 1: "a newer one",
	} {
		fsys := vfs.NewMem()
		o := testOptions
		o.format = format
		if _, _, err := Open(fsys, testDir, o); err == nil {
			t.Fatal("what was just made is read back without looking at its format")
		}
		for range 2 {
			_, _, err := Open(fsys, testDir, testOptions)
			var e *incumbent.Error
			if !errors.As(err, &e) || e.Kind != incumbent.Invalid || !strings.Contains(e.Hint, hint) {
				t.Errorf("format %d: %v", format, err)
			}
		}
	}
}
