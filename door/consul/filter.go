package consul

import (
	"fmt"

	"github.com/hashicorp/go-bexpr"
)

// maxFilterSteps bounds the work of parsing a filter, in rules of its grammar tried: the
// parser's work grows tenfold with each parenthesis inside another, and two dozen bytes
// would keep it busy for days. It allows for some five levels, and takes some 50 ms.
const maxFilterSteps = 1 << 18

// expression is what ?filter= selects records of type T by; nil selects all.
type expression[T any] struct{ of *bexpr.Evaluator }

// newExpression parses a filter; "" gives nil. The error is the caller's to read.
func newExpression[T any](text string) (*expression[T], error) {
	if text == "" {
		return nil, nil //nolint:nilnil // it selects all
	}
	_, err := bexpr.Parse("", []byte(text), bexpr.MaxExpressions(maxFilterSteps))
	if err == nil {
		var e expression[T]
		if e.of, err = bexpr.CreateEvaluatorForType(text, nil, (*T)(nil)); err == nil {
			return &e, nil
		}
	}
	return nil, fmt.Errorf("Failed to create boolean expression evaluator: %w", err) //nolint:staticcheck // clients know it so
}

// selects reports whether a record is selected.
func (e *expression[T]) selects(record *T) bool {
	if e == nil {
		return true
	}
	yes, err := e.of.Evaluate(record)
	return yes && err == nil
}
