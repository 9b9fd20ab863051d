// Command etcd is etcd's server, unmodified, built from the module that go.mod
// pins. It takes etcd's ordinary flags; `etcd --version` says what it is.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
