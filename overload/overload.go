// Package overload makes the errors of who is refused for the load. State machines do not:
// what they answer is the same everywhere.
package overload

import (
	"math/rand/v2"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Retry is what [Errorf] says to wait, spread over half of it to half as much again.
const Retry = time.Second

// Errorf returns an error of kind [incumbent.Overloaded] that says when to come back: each time
// another, so that those who are refused at the same time do not come back at the same time.
func Errorf(format string, args ...any) *incumbent.Error {
	e := incumbent.Errorf(incumbent.Overloaded, format, args...)
	e.RetryAfter = Retry/2 + rand.N(Retry)
	return e
}
