package incumbent

// HasMoreValues reports whether a text, if it is JSON, has more values than most: a few
// bytes of a list become hundreds once they are decoded, so doors look before they decode.
func HasMoreValues(text []byte, most int) bool {
	if len(text) <= most {
		return false // each but the first has a byte of its own before it
	}
	n, quoted := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
			if c == '\\' {
				i++
			}
		case c == ',' || c == '[' || c == '{':
			if n++; n > most {
				return true
			}
		}
	}
	return false
}
