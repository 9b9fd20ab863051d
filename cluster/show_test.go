package cluster

import (
	"testing"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func TestSchemaMix(t *testing.T) {
	members := []*apiv1.Member{{Name: "n2", Schema: 2}, {Name: "n1", Schema: 2}, {Name: "n3", Schema: 3}, {Name: "gone"}}
	if got, want := schemaMix(members), "members know different schemas: n1, n2 hold the cluster at 2; upgrade them"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := schemaMix(members[:2]); got != "" {
		t.Errorf("got %q", got)
	}
}
