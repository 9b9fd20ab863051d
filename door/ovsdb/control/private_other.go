//go:build !unix

package control

// private does nothing: the directory of the socket guards it there.
func private() (over func()) { return func() {} }
