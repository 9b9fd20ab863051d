package consul

import (
	"strings"
	"testing"
)

func TestExpressions(t *testing.T) {
	entry := &entryJSON{
		Node: &nodeJSON{Node: "n1", Meta: map[string]string{"rack": "a"}},
		Service: &serviceJSON{
			Service: "web", Tags: []string{"v1", "blue"}, Port: 80, Weights: weightsJSON{Passing: 2},
			TaggedAddresses: map[string]addressJSON{"wan": {Address: "1.2.3.4", Port: 81}},
		},
		Checks: []*checkJSON{{CheckID: "a", Status: "passing"}, {CheckID: "b", Status: "critical", ServiceTags: []string{"v1"}}},
	}
	for text, want := range map[string]bool{
		``:                           true,
		`Service.Service == web`:     true,
		`Service.Service != "web"`:   false,
		`Service.Tags contains blue`: true,
		`red in Service.Tags`:        false,
		`"v1" in Service.Tags and Service.Port == 80`:         true,
		`Node.Meta.rack == b or Node.Node matches "^n[0-9]$"`: true,
		`not Node.Meta.zone == b`:                             true,
		`Node.Meta.zone != ""`:                                true,
		`Service.Meta is empty`:                               true,
		`Checks is empty`:                                     false,
		`Checks.Status == critical`:                           true, // any
		`Checks.Status == warning`:                            false,
		`Checks.ServiceTags contains v1`:                      true,
		`Service.Weights.Passing == 2`:                        true,
		`Service.TaggedAddresses.wan.Port == 81`:              true,
		`Service.Connect.Native == false`:                     true,
		`Service.Proxy.DestinationServiceName == ""`:          true,
		`Service.TaggedAddresses["wan"].Address != here`:      true,
	} {
		e, err := newExpression[entryJSON](text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := e.selects(entry); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestExpressionsThatAreRefused(t *testing.T) {
	for _, text := range []string{
		`Service`, `Service.Nothing == 1`, `Node.CreateIndex == 1`, `Service.Port == x`, `Node.Node matches "("`, `Checks.Definition.HTTP == x`,
		strings.Repeat("(", 30), // days of work
		strings.Repeat("(", 30) + "Node.Node == a" + strings.Repeat(")", 30),
	} {
		_, err := newExpression[entryJSON](text)
		if err == nil || !strings.HasPrefix(err.Error(), "Failed to create boolean expression evaluator: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
