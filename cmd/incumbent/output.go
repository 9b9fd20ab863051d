package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
)

// Output forms of every verb that prints data.
const (
	formTable = "table"
	formJSON  = "json"  // one indented document
	formJSONL = "jsonl" // one object a line
)

// addOutput gives a command the flag -o.
func addOutput(c *cobra.Command) {
	c.Flags().StringP("output", "o", formTable, "output form: table, json or jsonl")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formTable, formJSON, formJSONL}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// formOf is the output form of a command that has one: checkForm was called before.
func formOf(c *cobra.Command) string { return text(c, "output") }

func checkForm(c *cobra.Command) error {
	switch form := formOf(c); form {
	case formTable, formJSON, formJSONL:
		return nil
	default:
		return usageError{fmt.Sprintf("output form %q is none of table, json, jsonl", form)}
	}
}

// printJSON writes v as one document (json) or one line (jsonl), in which nothing
// is that a terminal would obey.
func printJSON(w io.Writer, form string, v any) error {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	if form == formJSON {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(incumbent.EscapeJSON(doc.Bytes()))
	return err
}

// printList writes a list as one document (json) or an item a line (jsonl).
func printList[T any](w io.Writer, form string, all []T) error {
	if form == formJSON {
		return printJSON(w, form, append([]T{}, all...)) // an empty list is [], not null
	}
	for _, one := range all {
		if err := printJSON(w, form, one); err != nil {
			return err
		}
	}
	return nil
}

// printRecords writes a list of messages as they are, or the table of them for people.
func printRecords[M proto.Message](w io.Writer, form string, all []M, t *table) error {
	if form == formTable {
		return t.print(w)
	}
	list := make([]any, len(all))
	for i, m := range all {
		var err error
		if list[i], err = protoValue(m); err != nil {
			return err
		}
	}
	return printList(w, form, list)
}

// printProto writes a message with the field names of its .proto file and
// fields at zero included, so that scripts find every key.
func printProto(w io.Writer, form string, m proto.Message) error {
	v, err := protoValue(m)
	if err != nil {
		return err
	}
	return printJSON(w, form, v)
}

// protoValue goes by way of a plain value: protojson varies its white space on
// purpose, ours is stable.
func protoValue(m proto.Message) (any, error) {
	opts := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}
	raw, err := opts.Marshal(m)
	if err != nil {
		return nil, err
	}
	var v any
	return v, json.Unmarshal(raw, &v)
}

// say writes one line for people. What is in it cannot write another, nor anything
// that a terminal would obey.
func say(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(w, incumbent.Escape(fmt.Sprintf(format, args...)))
	return err
}

// table collects rows and prints them aligned, a header first. What is in a cell
// cannot write another.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(t.header) > 0 {
		fmt.Fprintf(tw, "%s\n", strings.ToUpper(strings.Join(t.header, "\t")))
	}
	for _, r := range t.rows {
		plain := make([]string, len(r))
		for i, cell := range r {
			plain[i] = incumbent.Escape(cell)
		}
		fmt.Fprintf(tw, "%s\n", strings.Join(plain, "\t"))
	}
	return tw.Flush()
}
