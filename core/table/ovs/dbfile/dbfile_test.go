package dbfile

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the format's checksum
	"fmt"
	"slices"
	"strings"
	"testing"
)

// databaseFile is a file of records.
func databaseFile(kind string, records ...string) string {
	var b strings.Builder
	for _, r := range records {
		r += "\n"
		fmt.Fprintf(&b, "OVSDB %s %d %x\n%s", kind, len(r), sha1.Sum([]byte(r)), r) //nolint:gosec // see above
	}
	return b.String()
}

const petsSchema = `{"name":"Pets","version":"1.0.0","tables":{"Pet":{"isRoot":true,"indexes":[["name"]],"columns":{
"name":{"type":"string"},"age":{"type":"integer"},"ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}},
"friends":{"type":{"key":{"type":"uuid","refTable":"Pet","refType":"weak"},"min":0,"max":"unlimited"}}}}}}`

const (
	cat = "00000000-0000-4000-8000-000000000001"
	dog = "00000000-0000-4000-8000-000000000002"
)

// transactions, and the rows that there are in the end.
var (
	petRecords = []string{
		`{"_date":1,"_comment":"x","_is_diff":true,"Pet":{"` + cat + `":{"name":"cat","ids":["map",[["a","1"],["b","1"]]]},"` + dog + `":{"name":"dog"}}}`,
		`{"_is_diff":true,"Pet":{"` + cat + `":{"age":7,"ids":["map",[["a","2"],["b","1"],["c","1"]]]}}}`,
		`{"Pet":{"` + cat + `":{"name":"tom"},"` + dog + `":null}}`,
	}
	petRows = []string{cat + ` {"age":7,"ids":["map",[["a","2"],["c","1"]]],"name":"tom"}`}
)

func rowsOf(c *Content) (list []string) {
	for i, of := range c.Schema.Tables {
		for id, r := range c.Tables[i] {
			list = append(list, id.String()+" "+string(AppendRow(nil, of, r.Columns)))
		}
	}
	slices.Sort(list)
	return list
}

func TestStandaloneFileIsRead(t *testing.T) {
	text := databaseFile(standaloneFile, append([]string{petsSchema}, petRecords...)...)
	c, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := rowsOf(c); !slices.Equal(got, petRows) {
		t.Errorf("rows %v, want %v", got, petRows)
	}
}

func TestClusteredFileIsRead(t *testing.T) {
	entry := func(index int, data string) string {
		return fmt.Sprintf(`{"term":1,"index":%d,"data":%s}`, index, data)
	}
	text := databaseFile(clusteredFile,
		`{"name":"Pets","prev_index":4,"prev_data":[`+petsSchema+`,`+petRecords[0]+`]}`,
		`{"term":2,"vote":"x"}`,
		entry(5, `[null,{"Pet":{"`+cat+`":null}}]`), // overwritten by another leader's
		entry(5, `[null,`+petRecords[1]+`]`),
		entry(6, `null`),
		entry(7, `[null,`+petRecords[2]+`]`),
		`{"commit_index":7}`,
		entry(8, `[null,{"Pet":{"`+cat+`":null}}]`), // not committed
	)
	c, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := rowsOf(c); !slices.Equal(got, petRows) || c.Behind != 1 {
		t.Errorf("rows %v, %d behind; want %v and one", got, c.Behind, petRows)
	}
}

// Every damage is found, and its place said.
func TestDamagedFileIsRefused(t *testing.T) {
	whole := databaseFile(standaloneFile, append([]string{petsSchema}, petRecords...)...)
	second := len(databaseFile(standaloneFile, petsSchema))
	place := fmt.Sprintf("record 2, at byte %d: ", second)
	for name, text := range map[string]string{
		"it ends after":         whole[:second+100],
		"its SHA-1 is another":  strings.Replace(whole, `"cat"`, `"bat"`, 1),
		"it does not begin":     whole[:second] + "x" + whole[second:],
		"its first line":        whole[:second+20],
		"it is of kind CLUSTER": databaseFile(standaloneFile, petsSchema) + databaseFile(clusteredFile, petRecords[0]),
		"no table Fish":         databaseFile(standaloneFile, petsSchema, `{"Fish":{"`+cat+`":{}}}`),
		"it goes, and is not":   databaseFile(standaloneFile, petsSchema, `{"Pet":{"`+cat+`":null}}`),
		"no column nose":        databaseFile(standaloneFile, petsSchema, `{"Pet":{"`+cat+`":{"nose":1}}}`),
		"it has no uuid":        databaseFile(standaloneFile, petsSchema, `{"Pet":{"x":{}}}`),
		"limit is 1073741824":   whole[:second] + "OVSDB JSON 99999999999 x\n",
		"offset 2":              databaseFile(standaloneFile, petsSchema, `{`),
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), place) || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %q at %q", err, name, place)
		}
	}
	first := `{"prev_index":1,"prev_data":[` + petsSchema + `,{}]}`
	rowless := databaseFile(clusteredFile, first, `{"index":2,"data":[`+petsSchema+`,null]}`, `{"commit_index":2}`)
	if _, err := Read(strings.NewReader(rowless)); err == nil || !strings.Contains(err.Error(), "record 3, ") || !strings.Contains(err.Error(), "without its rows") {
		t.Errorf("a schema without rows: %v", err)
	}
}

func FuzzDatabaseFile(f *testing.F) {
	f.Add([]byte(databaseFile(standaloneFile, append([]string{petsSchema}, petRecords...)...)), "")
	f.Add([]byte{}, petRecords[0])
	f.Add([]byte{}, petRecords[1])
	f.Fuzz(func(t *testing.T, file []byte, record string) {
		if record != "" { // a checksum is not found by chance
			file = []byte(databaseFile(standaloneFile, petsSchema, petRecords[0], record))
		}
		c, err := Read(bytes.NewReader(file))
		if err != nil {
			return
		}
		var rows strings.Builder
		rows.WriteString(`{`)
		for i, of := range c.Schema.Tables {
			if i > 0 {
				rows.WriteString(",")
			}
			fmt.Fprintf(&rows, `%q:{`, of.Name)
			some := ""
			for id, r := range c.Tables[i] {
				fmt.Fprintf(&rows, `%s"%s":%s`, some, id, AppendRow(nil, of, r.Columns))
				some = ","
			}
			rows.WriteString("}")
		}
		again, err := Read(strings.NewReader(databaseFile(standaloneFile, string(c.Schema.JSON), rows.String()+"}")))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if got, want := rowsOf(again), rowsOf(c); !slices.Equal(got, want) {
			t.Fatalf("read again: %v, want %v", got, want)
		}
	})
}
