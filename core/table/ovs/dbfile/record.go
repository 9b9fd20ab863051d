package dbfile

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // the format's checksum: it finds damage, nobody relies on it for more
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// A file of ovsdb-server's is a log of records: a line with a word for its kind, the
// bytes that follow and their SHA-1, then JSON and a newline, which are counted.
const (
	standaloneFile = "JSON"
	clusteredFile  = "CLUSTER"

	maxRecordBytes     = 1 << 30 // of one record
	maxRecordLineBytes = 128     // of the line before it
)

// records reads the records of a file.
type records struct {
	in     *bufio.Reader
	kind   string // of all records; empty before the first
	number int    // of the record that was read last, from 1
	at     int64  // where it begins
	end    int64  // where it ends
}

func newRecords(in io.Reader) *records {
	return &records{in: bufio.NewReaderSize(in, 1<<16)}
}

// next returns the next record, io.EOF behind the last. Its other errors name the place.
func (l *records) next() (ovs.Value, error) {
	l.at = l.end
	l.number++
	line, err := l.line()
	if errors.Is(err, io.EOF) && line == "" {
		return ovs.Value{}, io.EOF
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // the file ends within a record
	}
	if err != nil {
		return ovs.Value{}, l.bad("its first line: %w", err)
	}
	size, sum, err := l.head(line)
	if err != nil {
		return ovs.Value{}, err
	}
	var text strings.Builder // grows by what is there, whatever the line says
	hash := sha1.New()       //nolint:gosec // see above
	n, err := io.Copy(io.MultiWriter(&text, hash), io.LimitReader(l.in, size))
	l.end += n
	switch {
	case err != nil:
		return ovs.Value{}, l.bad("%w", err)
	case n < size:
		return ovs.Value{}, l.bad("it ends after %d of %d bytes", n, size)
	case hex.EncodeToString(hash.Sum(nil)) != sum:
		return ovs.Value{}, l.bad("its SHA-1 is another than its first line says")
	}
	v, wrong := ovs.ParseJSON(text.String())
	if wrong != nil {
		return ovs.Value{}, l.bad("%w", wrong)
	}
	if v.Kind() != ovs.Object {
		return ovs.Value{}, l.bad("it is no object")
	}
	return v, nil
}

// line reads the line before a record.
func (l *records) line() (string, error) {
	var b []byte
	for len(b) < maxRecordLineBytes {
		c, err := l.in.ReadByte()
		if err != nil {
			return string(b), err
		}
		l.end++
		if c == '\n' {
			return string(b), nil
		}
		b = append(b, c)
	}
	return string(b), errors.New("it has no end")
}

// head takes the line apart that is before a record.
func (l *records) head(line string) (size int64, sum string, _ error) {
	word := strings.Split(line, " ")
	if len(word) != 4 || word[0] != "OVSDB" || word[1] != standaloneFile && word[1] != clusteredFile {
		return 0, "", l.bad("it does not begin as one of a database file")
	}
	size, err := strconv.ParseInt(word[2], 10, 64)
	if err != nil || size < 0 || size > maxRecordBytes {
		return 0, "", l.bad("it has %q bytes: limit is %d", word[2], maxRecordBytes)
	}
	if l.kind != "" && l.kind != word[1] {
		return 0, "", l.bad("it is of kind %s, those before it of kind %s", word[1], l.kind)
	}
	l.kind = word[1]
	return size, strings.ToLower(word[3]), nil
}

// bad is an error that says in which record.
func (l *records) bad(format string, args ...any) error {
	return incumbent.Errorf(incumbent.Invalid, "record %d, at byte %d: %w", l.number, l.at, fmt.Errorf(format, args...))
}

// WriteRecord writes a record of a stand-alone file: the JSON, with a newline at its end,
// of so many bytes and with that SHA-1.
func WriteRecord(w io.Writer, size int64, sum []byte, text io.Reader) error {
	if _, err := fmt.Fprintf(w, "OVSDB %s %d %x\n", standaloneFile, size, sum); err != nil {
		return err
	}
	_, err := io.Copy(w, text)
	return err
}
