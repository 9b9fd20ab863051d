package native

import "context"

type heardKey struct{}

// WithHeard returns a context for a request of ServeHTTP. The door calls heard
// once all extensions in the request that do not wait for its other operations
// were handed to the lease service. A request that is refused before does not call
// it: it has ended when ServeHTTP returns. heard may be called more than once.
func WithHeard(ctx context.Context, heard func()) context.Context {
	return context.WithValue(ctx, heardKey{}, heard)
}

// Heard says that what a request extends has been handed on.
func Heard(ctx context.Context) {
	if f, ok := ctx.Value(heardKey{}).(func()); ok {
		f()
	}
}
