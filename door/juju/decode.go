package juju

import (
	"encoding/json"
	"time"
)

// request is what a client sends. Keys are matched whatever their case, as the
// original does.
type request struct {
	ID      uint64          `json:"request-id"`
	Facade  string          `json:"type"`
	Version int             `json:"version"`
	Object  string          `json:"id"`
	Method  string          `json:"request"`
	Params  json.RawMessage `json:"params"`
}

// decodeRequest reads a request; false if it is none.
func decodeRequest(b []byte) (r request, ok bool) {
	if tooDeep(b) {
		return request{}, false
	}
	if r, ok = plainRequest(b); ok {
		return r, true
	}
	if json.Unmarshal(b, &r) != nil || r.ID == 0 {
		return request{}, false
	}
	return r, true
}

// tooDeep reports whether brackets nest more than maxNesting deep.
func tooDeep(b []byte) bool {
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxNesting {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// loginParams are those of Admin.Login. What else a client sends is not looked
// at: its command line above all, which holds a password.
type loginParams struct {
	Tag         string `json:"auth-tag"`
	Credentials string `json:"credentials"`
}

// claimParams are those of LeadershipService.ClaimLeadership.
type claimParams struct {
	Params []claimParam `json:"params"`
}

type claimParam struct {
	Application string  `json:"application-tag"`
	Unit        string  `json:"unit-tag"`
	Duration    float64 `json:"duration"` // seconds
}

// decodeClaim reads the params of a claim.
func decodeClaim(r *request) (p claimParams, f *failure) {
	if one, ok := plainClaim(r.Params); ok {
		return claimParams{[]claimParam{one}}, nil
	}
	f = decodeParams(r, &p)
	return p, f
}

// blockParams are those of LeadershipService.BlockUntilLeadershipReleased.
type blockParams struct {
	Name string
}

// singularParams are those of Singular.Claim.
type singularParams struct {
	Claims []struct {
		Entity   string        `json:"entity-tag"`
		Claimant string        `json:"claimant-tag"`
		Duration time.Duration `json:"duration"`
	} `json:"claims"`
}

// entityParams are those of Singular.Wait, and of LeadershipPinner.
type entityParams struct {
	Entities []struct {
		Tag string `json:"tag"`
	} `json:"entities"`
}

// decodeParams reads the params of a call; missing ones are empty.
func decodeParams[T any](r *request, into *T) *failure {
	if len(r.Params) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.Params, into); err != nil {
		return errParams("params are malformed")
	}
	return nil
}

// seconds converts a number of seconds; false if it is out of bounds, or no
// number.
func seconds(f float64) (time.Duration, bool) {
	if !(f >= MinDuration.Seconds() && f <= MaxDuration.Seconds()) {
		return 0, false
	}
	return time.Duration(f * float64(time.Second)), true
}
