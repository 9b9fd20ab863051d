package catalog

import "testing"

// A check that is another instance's goes from one and comes to the other, though nothing
// else of it has changed: whatever fields they name, watchers are told.
func TestACheckThatMovesChangesInAllFields(t *testing.T) {
	at := func(service string) *Check {
		return &Check{Node: "n", ID: "c", ServiceID: service, ServiceName: "web", Status: Passing}
	}
	const all = uint64(1)<<(fieldMembership+1) - 1
	for service, want := range map[string]uint64{"b": all, "A": 1 << fieldOther, "a": 1 << fieldOther} {
		if got := (Family{}).Changed(at("a"), at(service)); got != want {
			t.Errorf("from a to %s: %b, want %b", service, got, want)
		}
	}
}
