package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// txnParser reads the statements of a transaction.
type txnParser struct {
	env              *environment
	namespace, model string
	to               *apiv1.TxnRequest
}

// file reads a file: the request in JSON if it begins with a brace.
func (p *txnParser) file(name string) error {
	from := "@" + name
	if name == "-" {
		from = name
	}
	raw, err := valueOf(p.env, from)
	if err != nil {
		return err
	}
	if trimmed := strings.TrimSpace(string(raw)); strings.HasPrefix(trimmed, "{") {
		if err := protojson.Unmarshal(raw, p.to); err != nil {
			return usageError{name + ": " + err.Error()}
		}
		return nil
	}
	var ops *[]*apiv1.TxnOperation
	for i, line := range strings.Split(string(raw), "\n") {
		words, err := wordsOf(line)
		switch {
		case err != nil:
		case len(words) == 0:
			continue
		case len(words) == 1 && words[0] == "then":
			ops = &p.to.Then
		case len(words) == 1 && words[0] == "else":
			ops = &p.to.Else
		case words[0] == "if":
			err = p.condition(words[1:])
		case ops == nil:
			err = fmt.Errorf("it stands before then and else, and does not begin with if")
		default:
			err = p.operation(ops, words)
		}
		if interrupted(err) {
			return err
		}
		if err != nil {
			return usageError{fmt.Sprintf("%s:%d: %v", name, i+1, err)}
		}
	}
	return nil
}

// shape checks how many words a statement has.
func shape(words []string, form string) error {
	if want := len(strings.Fields(form)); len(words) != want {
		return fmt.Errorf("want %q", form)
	}
	return nil
}

func (p *txnParser) condition(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("the condition is empty")
	}
	c := &apiv1.Condition{}
	var err error
	switch words[0] {
	case "held":
		if err = shape(words, "held LEASE TOKEN"); err == nil {
			var token uint64
			token, err = number(words[2])
			c.Is = &apiv1.Condition_Held{Held: &apiv1.HeldCondition{Name: p.lease(words[1]), Token: token}}
		}
	case "session":
		if err = shape(words, "session UUID"); err == nil {
			c.Is = &apiv1.Condition_SessionOpen{SessionOpen: words[1]}
		}
	case "none":
		if err = shape(words, "none PREFIX"); err == nil {
			c.Is = &apiv1.Condition_Range{Range: &apiv1.RangeCondition{Namespace: p.namespace, Prefix: words[1], Is: &apiv1.RangeCondition_Empty{Empty: true}}}
		}
	case "unchanged":
		if err = shape(words, "unchanged PREFIX N"); err == nil {
			var since uint64
			since, err = number(words[2])
			c.Is = &apiv1.Condition_Range{Range: &apiv1.RangeCondition{Namespace: p.namespace, Prefix: words[1], Is: &apiv1.RangeCondition_UnchangedSince{UnchangedSince: since}}}
		}
	case "key":
		var of *apiv1.KeyCondition
		of, err = p.keyCondition(words)
		c.Is = &apiv1.Condition_Key{Key: of}
	default:
		err = fmt.Errorf("%q is none of held, session, key, none, unchanged", words[0])
	}
	if err == nil {
		p.to.Conditions = append(p.to.Conditions, c)
	}
	return err
}

// comparisons are those of the API, by how they are written.
var comparisons = map[string]apiv1.Comparison{
	"=": apiv1.Comparison_COMPARISON_EQUAL, "!=": apiv1.Comparison_COMPARISON_NOT_EQUAL,
	"<": apiv1.Comparison_COMPARISON_LESS, ">": apiv1.Comparison_COMPARISON_GREATER,
}

func (p *txnParser) keyCondition(words []string) (*apiv1.KeyCondition, error) {
	if len(words) < 3 {
		return nil, fmt.Errorf("want %q, with index, value, absent, exists or locked", "key KEY …")
	}
	c := &apiv1.KeyCondition{Namespace: p.namespace, Key: words[1]}
	never := &apiv1.KeyCondition_ModifiedIndex{}
	rest := words[2:]
	switch rest[0] {
	case "absent":
		c.Is = never
		return c, shape(rest, "absent")
	case "exists":
		c.Is, c.Comparison = never, apiv1.Comparison_COMPARISON_NOT_EQUAL
		return c, shape(rest, "exists")
	case "locked":
		if err := shape(rest, "locked UUID"); err != nil {
			return nil, err
		}
		c.Is = &apiv1.KeyCondition_LockedBy{LockedBy: rest[1]}
		return c, nil
	}
	if err := shape(rest, rest[0]+" = N"); err != nil {
		return nil, err
	}
	var known bool
	if c.Comparison, known = comparisons[rest[1]]; !known {
		return nil, fmt.Errorf("%q is none of = != < >", rest[1])
	}
	switch rest[0] {
	case "index":
		n, err := number(rest[2])
		c.Is = &apiv1.KeyCondition_ModifiedIndex{ModifiedIndex: n}
		return c, err
	case "value":
		v, err := valueOf(p.env, rest[2])
		c.Is = &apiv1.KeyCondition_Value{Value: v}
		return c, err
	}
	return nil, fmt.Errorf("%q is none of index, value, absent, exists, locked", rest[0])
}

// forms are the operations, and what they are followed by.
var forms = map[string]string{
	"get": "get KEY", "list": "list PREFIX", "put": "put KEY VALUE", "rm": "rm KEY", "rm-tree": "rm-tree PREFIX",
	"lock": "lock KEY VALUE UUID", "unlock": "unlock KEY VALUE UUID",
	"claim": "claim LEASE HOLDER TTL", "release": "release LEASE TOKEN",
}

func (p *txnParser) operation(to *[]*apiv1.TxnOperation, words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("the operation is empty")
	}
	form, known := forms[words[0]]
	if !known {
		return fmt.Errorf("%q is none of get, list, put, rm, rm-tree, lock, unlock, claim, release", words[0])
	}
	if err := shape(words, form); err != nil {
		return err
	}
	op, err := p.operationOf(words)
	if err == nil {
		*to = append(*to, op)
	}
	return err
}

func (p *txnParser) operationOf(words []string) (*apiv1.TxnOperation, error) {
	ns, name := p.namespace, words[1]
	var value []byte
	var err error
	if len(words) > 2 && words[0] != "claim" && words[0] != "release" {
		if value, err = valueOf(p.env, words[2]); err != nil {
			return nil, err
		}
	}
	switch words[0] {
	case "get":
		return &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Get{Get: &apiv1.GetKeyRequest{Namespace: ns, Key: name}}}, nil
	case "list":
		return &apiv1.TxnOperation{Op: &apiv1.TxnOperation_List{List: &apiv1.ListKeysRequest{Namespace: ns, Prefix: name}}}, nil
	case "put":
		return &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Put{Put: &apiv1.PutRequest{Namespace: ns, Key: name, Value: value}}}, nil
	case "rm", "rm-tree":
		return &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Delete{Delete: &apiv1.DeleteRequest{Namespace: ns, Key: name, Tree: words[0] == "rm-tree"}}}, nil
	case "lock":
		return &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Lock{Lock: &apiv1.LockRequest{Namespace: ns, Key: name, Value: value, Session: words[3]}}}, nil
	case "unlock":
		return &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Unlock{Unlock: &apiv1.UnlockRequest{Namespace: ns, Key: name, Value: value, Session: words[3]}}}, nil
	case "claim":
		ttl, err := time.ParseDuration(words[3])
		if err == nil {
			err = incumbent.ValidateTTL(ttl)
		}
		return &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Claim{Claim: &apiv1.ClaimRequest{Name: p.lease(name), Holder: words[2], TtlMs: uint32(ttl.Milliseconds())}}}, err
	default: // release
		token, err := number(words[2])
		return &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Release{Release: &apiv1.ReleaseRequest{Name: p.lease(name), Token: token}}}, err
	}
}

func (p *txnParser) lease(name string) *apiv1.LeaseName {
	return &apiv1.LeaseName{Namespace: p.namespace, Model: p.model, Name: name}
}

func number(word string) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", word)
	}
	return n, nil
}
