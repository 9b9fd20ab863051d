package consul

import (
	"html"
	"net/http"
	"path"
	"strings"
	"unicode"
)

// unprintable answers a request on whose path is what cannot be printed, and reports whether
// it was one: whatever it asks for, nobody serves it.
func (r *request) unprintable() bool {
	if strings.IndexFunc(r.path, func(c rune) bool { return !unicode.IsPrint(c) }) < 0 {
		return false
	}
	r.bare = true
	r.bytes(http.StatusBadRequest, "", nil)
	return true
}

// cleaned sends a client on whose path has empty elements or dots, or lacks the slash at
// the end of a route, and reports whether it has. What only shows once it is decoded is
// cleaned where it is: no key has such elements in its name, whichever way it was written.
func (r *request) cleaned() bool {
	sent := r.head.URL.EscapedPath()
	clean := cleanPath(sent)
	r.path = cleanPath(r.path)
	if r.door.routes.lacksSlash(r.path) {
		clean += "/"
	}
	if clean == sent {
		return false
	}
	if r.head.URL.RawQuery != "" {
		clean += "?" + r.head.URL.RawQuery
	}
	r.bare = true
	r.setHeader("Location", clean)
	if r.method != http.MethodGet && r.method != http.MethodHead {
		r.bytes(http.StatusTemporaryRedirect, "", nil)
		return true
	}
	text := "<a href=\"" + html.EscapeString(clean) + "\">Temporary Redirect</a>.\n\n"
	r.bytes(http.StatusTemporaryRedirect, "text/html; charset=utf-8", []byte(text))
	return true
}

// cleanPath is a path without empty elements and dots. A slash at its end stays.
func cleanPath(p string) string {
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
