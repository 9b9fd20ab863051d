package native

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// BenchmarkOutline is what it takes to see what a transaction of 500 operations asks for, which
// is not decoded.
func BenchmarkOutline(b *testing.B) {
	in := &pb.TxnRequest{}
	for i := range 500 {
		in.Then = append(in.Then, &pb.TxnOperation{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: fmt.Sprintf("flood/%d", i), Value: make([]byte, 64)}}})
	}
	raw, err := proto.Marshal(in)
	if err != nil {
		b.Fatal(err)
	}
	m := &pb.TxnRequest{}
	undecoded(raw, m)
	b.ReportAllocs()
	for b.Loop() {
		groupOf(m)
		if _, steps := outlineOfTxn(m); steps.then != 500 {
			b.Fatal(steps)
		}
	}
}
