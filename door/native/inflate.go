package native

import (
	"compress/gzip"
	"io"

	"connectrpc.com/connect"
)

// bounding replaces Connect's own gzip by one that ends at a limit: the library would
// inflate the rest, to say how long it is, and a megabyte can say a gigabyte.
func (d *Door) bounding(most int) connect.HandlerOption {
	tooLarge := func() error { return d.callError(tooLargeBody(most)) }
	return connect.WithCompression("gzip",
		func() connect.Decompressor {
			return &inflater{most: most, tooLarge: tooLarge, share: bodyShare{door: d}}
		},
		func() connect.Compressor { return gzip.NewWriter(io.Discard) },
	)
}

// inflater decompresses, of each message, at most so many bytes.
type inflater struct {
	gzip.Reader
	most     int // bytes
	left     int
	tooLarge func() error
	share    bodyShare // of nobody in particular: whose message it is, Connect does not say
}

// Reset implements connect.Decompressor.
func (z *inflater) Reset(r io.Reader) error {
	z.left = z.most
	z.share.give()
	return z.Reader.Reset(r)
}

// Read implements io.Reader.
func (z *inflater) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := z.Reader.Read(p[:min(len(p), z.left+1)]) // one more says that there is more
	if n > z.left {
		n, err = z.left, z.tooLarge()
	}
	z.left -= n
	if refusal := z.share.take(n); refusal != nil {
		return 0, refusal
	}
	return n, err
}

// Close implements connect.Decompressor.
func (z *inflater) Close() error {
	z.share.give()
	return z.Reader.Close()
}
