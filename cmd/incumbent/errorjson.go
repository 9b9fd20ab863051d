package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/incumbent-dev/incumbent"
)

// errorObject is an error for programs: what errorText says to people. It goes to
// standard error, in the form that was asked for with -o.
type errorObject struct {
	Kind         string `json:"kind,omitempty"` // of incumbent.Kind; absent where none stands for it
	ExitCode     int    `json:"exit_code"`
	Message      string `json:"message"`
	Hint         string `json:"hint,omitempty"`
	Retryable    bool   `json:"retryable"` // the same command may succeed later, unchanged
	RetryAfterMs int64  `json:"retry_after_ms,omitempty"`
	Member       string `json:"member,omitempty"` // which one answered
	Leader       string `json:"leader,omitempty"` // if known
}

// objectOf is the error of the command at path.
func objectOf(err error, path string) errorObject {
	o := errorObject{ExitCode: exitCode(err), Message: err.Error()}
	var typed *incumbent.Error
	var status statusError
	switch {
	case errors.As(err, &status): // a code of its own, whatever is behind it
	case interrupted(err):
		o.Message = errorText(err)
	case errors.As(err, &typed):
		o.Kind, o.Hint, o.Member, o.Leader = typed.Kind.String(), typed.Hint, typed.Member, typed.Leader
		o.Retryable, o.RetryAfterMs = typed.Kind.Transient(), typed.RetryAfter.Milliseconds()
		if o.Message == typed.Error() && typed.Message != "" {
			o.Message = typed.Message
		}
	case o.ExitCode == exitUsage:
		o.Kind = incumbent.Invalid.String()
	case o.ExitCode == exitTimeout:
		o.Kind = incumbent.DeadlineExceeded.String()
	}
	if o.ExitCode == exitUsage && o.Hint == "" {
		o.Hint = helpFor(path)
	}
	return o
}

func helpFor(path string) string { return "see '" + path + " --help'" }

// errorForm is the form of a command's errors: that of its output, also where the
// command line was not read up to -o because something before it is wrong.
func errorForm(c *cobra.Command, args []string, env *environment) string {
	f := c.Flag("output")
	if f == nil {
		return formTable
	}
	form := f.Value.String()
	if !f.Changed {
		form, _ = lookupEnv(env, "output")
		form = outputArg(args, form)
	}
	if form == formJSON || form == formJSONL {
		return form
	}
	return formTable
}

// outputArg is the value of -o among arguments, or otherwise.
func outputArg(args []string, otherwise string) string {
	for i, a := range args {
		if a == "--" {
			break
		}
		if (a == "-o" || a == "--output") && i+1 < len(args) {
			return args[i+1]
		}
		if v, ok := strings.CutPrefix(a, "--output="); ok {
			return v
		}
		if v, ok := strings.CutPrefix(a, "-o"); ok {
			return strings.TrimPrefix(v, "=")
		}
	}
	return otherwise
}
