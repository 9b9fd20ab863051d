package auth

import (
	"bufio"
	"errors"
	"io"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// eachLine calls take for every line of a file but empty ones and those that begin
// with #, without the space around it. An error of take ends it and gets the line's
// number; one of the file's own is Invalid, or TooLarge for a line of more than
// MaxCredentialBytes. what names the file in errors.
func eachLine(r io.Reader, what string, take func(line string) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, MaxCredentialBytes), MaxCredentialBytes)
	n := 0
	for lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := take(line); err != nil {
			return incumbent.Errorf(incumbent.KindOf(err), "%s line %d: %w", what, n, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return incumbent.Errorf(incumbent.TooLarge, "%s line %d has more than %d bytes", what, n+1, MaxCredentialBytes)
	} else if err != nil {
		return incumbent.Errorf(incumbent.Invalid, "%s: %w", what, err)
	}
	return nil
}
