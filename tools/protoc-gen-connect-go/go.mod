module github.com/incumbent-dev/incumbent/tools/protoc-gen-connect-go

go 1.26.0

tool connectrpc.com/connect/cmd/protoc-gen-connect-go

require (
	connectrpc.com/connect v1.21.1 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
