package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// hostile is what somebody may have brought a server to say: it moves the cursor,
// begins lines and cells, and turns the reading direction.
const hostile = "x\x1b[2J\x1b]0;title\x07\r\nforged row\tcell \u202egnp\u2066\u009b31m\x7f\u200b"

// fill sets every field of a message, texts to what is hostile.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap(), f.Name() == "next", f.Name() == "more": // a list without end
		case f.IsList():
			list := m.Mutable(f).List()
			if f.Message() == nil {
				list.Append(value(f))
			} else if depth > 0 {
				fill(list.AppendMutable().Message(), depth-1)
			}
		case f.Message() != nil:
			if depth > 0 {
				fill(m.Mutable(f).Message(), depth-1)
			}
		default:
			m.Set(f, value(f))
		}
	}
}

func value(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(hostile)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(hostile + "\xff"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(f.Enum().Values().Len() - 1).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(7)
	default:
		return protoreflect.ValueOfFloat64(7)
	}
}

// hostileServer answers every call with a message, or with an error, that is hostile
// wherever it can be.
func hostileServer(t *testing.T, fails bool) string {
	t.Helper()
	detail, err := proto.Marshal(&apiv1.Error{Kind: "held", Message: hostile, Hint: hostile, Member: hostile, Leader: hostile})
	if err != nil {
		t.Fatal(err)
	}
	failure, err := json.Marshal(map[string]any{
		"code": "already_exists", "message": hostile,
		"details": []any{map[string]any{"type": "incumbent.v1.Error", "value": base64.RawStdEncoding.EncodeToString(detail)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		rpc := found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method))
		kind, err := protoregistry.GlobalTypes.FindMessageByName(rpc.Output().FullName())
		if err != nil {
			t.Error(err)
			return
		}
		m := kind.New()
		fill(m, 5)
		body, err := proto.Marshal(m.Interface())
		if err != nil {
			t.Error(err)
			return
		}
		switch {
		case rpc.IsStreamingServer():
			w.Header().Set("Content-Type", "application/connect+proto")
			if !fails {
				_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...))
			}
			end := []byte(`{"error":` + string(failure) + "}")
			_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{2}, uint32(len(end))), end...))
		case fails:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write(failure)
		default:
			w.Header().Set("Content-Type", "application/proto")
			_, _ = w.Write(body)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Whatever a server says, no command writes what a terminal obeys, nor a line that is
// not its own: in tables, sentences, JSON, and errors.
func TestNoCommandPrintsWhatATerminalObeys(t *testing.T) {
	members := filepath.Join(t.TempDir(), "transaction")
	if err := os.WriteFile(members, []byte("put a b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, fails := range []bool{false, true} {
		url := hostileServer(t, fails)
		for _, line := range []string{
			"status", "top -n 1", "events", "events --all-members", "cluster ls", "cluster token", "cluster rm a", "cluster promote a", "cluster transfer-leader a",
			"config show --effective", "doctor", "debug hash", "debug snapshot",
			"lease get a", "lease explain a", "lease history a", "lease ls", "lease ls --wide", "lease ls --sessions", "lease claim a --holder b", "lease extend a --token 7",
			"lease release a --token 7", "lease revoke a", "lease pin a --entity b", "lease unpin a --entity b", "lease transfer a --to-session 6ba7b810-9dad-11d1-80b4-00c04fd430c8 --token 7",
			"lease watch", "lease watch a", "kv ls", "kv ls --values", "kv put a b", "kv rm a", "kv watch a", "kv get a -o json",
			"presence ls", "presence watch", "catalog watch a", "table watch a",
		} {
			for _, form := range []string{"", "json", "jsonl"} {
				args := append(strings.Fields(line), "--server", url)
				if form != "" {
					args = append(args, "-o", form)
				}
				got := execute(t, nil, args...)
				if got.stdout+got.stderr == "" {
					t.Errorf("%s: nothing was printed", line)
				}
				for _, text := range []string{got.stdout, got.stderr} {
					if plain := incumbent.EscapeLines(text); plain != text {
						t.Errorf("%s -o %s (exit code %d) prints %q", line, form, got.code, text)
					}
					if strings.Contains("\n"+text, "\nforged") {
						t.Errorf("%s -o %s: a line is forged:\n%s", line, form, text)
					}
				}
			}
		}
	}
}
