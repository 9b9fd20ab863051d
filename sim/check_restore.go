package sim

import (
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/test/lists"
)

// rewound goes back to a state. Its delays begin anew.
func (c *keyChecker) rewound(v *core.View) {
	at := v.Index()
	clear(c.entries)
	for k, past := range c.past {
		past = slices.DeleteFunc(past, func(v version) bool { return v.at > at })
		if c.past[k] = past; len(past) == 0 {
			delete(c.past, k)
		} else if e := past[len(past)-1].entry; e != nil {
			c.entries[k] = e
		}
	}
	maps.DeleteFunc(c.ended, func(id incumbent.SessionID, _ bool) bool { return v.Session(id) != nil })
	clear(c.delays)
	kv.Of(v).Delays(func(d *kv.Delay) bool {
		c.delays[d.Key] = delay{c.w.now, d.For}
		return true
	})
	c.bytes, c.terms = kv.Of(v).Bytes(), v.Terms()
	for _, call := range c.calls {
		call.lost = true
	}
	c.calls, c.reads = nil, nil
	for _, k := range c.w.keys {
		e := c.entries[k]
		if e == nil || !isRegister(k) {
			continue
		}
		c.reads = append(c.reads, registerOperation{k, porcupine.Operation{
			ClientId: -1, Input: registerInput{verb: kv.Put, value: string(e.Value)}, Call: c.now(),
			Output: registerOutput{index: e.Modified}, Return: c.now(),
		}})
	}
}

// rewound begins another history, with the lists that are there.
func (c *listChecker) rewound(v *core.View) {
	c.history = nil
	for i := range listNum {
		k := listKey(i)
		for _, e := range elementsOf(kv.Of(v).Entry(k)) {
			now := c.w.check.keys.now()
			c.add(&lists.Txn{Client: -1, Called: now, Return: c.w.check.keys.now(), Appends: map[string]int{k.Name: e}})
		}
	}
}

// rewound goes back to a state. What is critical is so anew, as its deadlines are.
func (c *catalogChecker) rewound(v *core.View) {
	at := v.Index()
	clear(c.records)
	clear(c.since)
	c.last = 0
	for id, past := range c.past {
		past = slices.DeleteFunc(past, func(v recordVersion) bool { return v.at > at })
		if c.past[id] = past; len(past) == 0 {
			delete(c.past, id)
			continue
		}
		newest := past[len(past)-1]
		c.last = max(c.last, newest.at)
		if newest.is == nil {
			continue
		}
		c.records[id] = newest.is
		if k, is := newest.is.(*catalog.Check); is && k.Status == catalog.Critical {
			c.since[id] = c.w.now
		}
	}
	for m, past := range c.marks {
		i, _ := slices.BinarySearch(past, at+1)
		c.marks[m] = past[:i:i]
	}
}

// rewound goes back to a state.
func (c *policyChecker) rewound(v *core.View) {
	clear(c.are)
	policy.Of(v).Ascend("", func(p *policy.Policy) bool {
		c.are[p.Name] = p
		return true
	})
	c.changed, c.compared = policy.Of(v).Changed(), 0
}
