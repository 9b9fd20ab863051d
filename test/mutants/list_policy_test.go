package mutants

// ofPolicies are bugs of policies: who may do what.
var ofPolicies = []mutant{
	{
		name: "a denial names the owner of a session", guarantee: "G12",
		file: "auth/authorize.go", pkg: "./door/consul", test: "^TestG12_AnAttackerSeesAndChangesNothing$",
		search:  "\tcase d.state == Sessions && !p.opened(n.Lease):\n",
		replace: "\tcase d.state == Sessions && !p.opened(n.Lease) && false:\n",
	},
	{
		name: "a denial names what its request does not", guarantee: "G12",
		file: "door/consul/request.go", pkg: "./door/consul", test: "^TestG12_AnAttackerSeesAndChangesNothing$",
		search:  "\tif !r.names(subject) {\n",
		replace: "\tif !r.names(\"\") {\n",
	},
	{
		name: "namespaces of other doors belong to nobody", guarantee: "G12",
		file: "auth/authorize.go", pkg: "./door/native", test: "^TestG12_NamespacesOfOtherDoorsAreTheirs$",
		search:  "\tif door := d.reservedFor(r); door != \"\" {\n",
		replace: "\tif door := d.reservedFor(r); door != \"\" && door == r.Door {\n",
	},
	{
		name: "an agent holds in Juju's namespaces as one below its name", guarantee: "G12",
		file: "auth/authorize.go", pkg: "./door/native", test: "^TestG12_NamespacesOfOtherDoorsAreTheirs$",
		search:  "return !g.isAnother(d, r) && g.lets(d, r)",
		replace: "return g.lets(d, r)",
	},
	{
		name: "what no policy allows the table of kinds does", guarantee: "G12",
		file: "auth/authorize.go", pkg: "./auth", test: "^TestG12_PoliciesDenyByDefault$",
		search:  "\tif g.rules == nil {\n\t\treturn d.free[p.Kind].holds(p, r)\n",
		replace: "\tif d.free[p.Kind].holds(p, r) {\n\t\treturn true\n",
	},
	{
		name: "a rule for one name is for all below it", guarantee: "G12",
		file: "auth/policy.go", pkg: "./auth", test: "^TestG12_PoliciesDenyByDefault$",
		search:  "return !whole && p.text == name",
		replace: "return strings.HasPrefix(name, p.text)",
	},
	{
		name: "the pattern above another is forgotten", guarantee: "G12",
		file: "auth/rules.go", pkg: "./auth", test: "^TestG12_CompiledRulesAreThoseOfThePolicies$",
		search:  "\t\t\te.up = above[n-1]\n",
		replace: "",
	},
	{
		name: "a star in a principal's name is a pattern", guarantee: "G12",
		file: "auth/policy.go", pkg: "./auth", test: "^TestPlaceholdersAreLiteral$",
		search:  "\ttext, open := strings.CutSuffix(s, \"*\")\n\tif strings.Contains(text, \"{\") {",
		replace: "\ttext, open := strings.CutSuffix(strings.NewReplacer(ownName, p.Name).Replace(s), \"*\")\n\tif strings.Contains(text, \"{\") {",
	},
	{
		name: "rules are those of the first look", guarantee: "G12",
		file: "door/native/guard.go", pkg: "./door/native", test: "^TestG12_WhatIsOpenFollowsThePolicies$",
		search:  "g != nil && g.Under(rules) {",
		replace: "g != nil {",
	},
	{
		name: "a watch is shown what its caller may not watch", guarantee: "G12",
		file: "door/native/watch.go", pkg: "./door/native", test: "^TestG12_WatchesFollowThePolicies$",
		search:  "\tif !s.prefix || sight.All() {\n",
		replace: "\tif true {\n",
	},
	{
		name: "watches do not hear of a change of policies", guarantee: "G12",
		file: "door/native/rules.go", pkg: "./door/native", test: "^TestG12_WhatIsOpenFollowsThePolicies$",
		search:  "\td.watches.kickAll()\n",
		replace: "",
	},
	{
		name: "a deletion of a tree is judged by its prefix", guarantee: "G12",
		file: "door/native/txn_plan.go", pkg: "./door/native", test: "^TestG12_ATransactionIsJudgedByEachStep$",
		search:  "c.Key, c.Verb == kv.RemoveTree || c.Verb == kv.List); err",
		replace: "c.Key, false); err",
	},
	{
		name: "a refusal shows the entry to who may not see it", guarantee: "G12",
		file: "door/native/keys.go", pkg: "./door/native", test: "^TestG12_RefusalsHideWhatMayNotBeSeen$",
		search:  "case r.Err != nil && e != nil && ",
		replace: "case r.Err == nil && e != nil && ",
	},
	{
		name: "a session that may not be seen is there", guarantee: "G12",
		file: "door/native/session_service.go", pkg: "./door/native", test: "^TestG12_ListingsShowWhatMayBeSeen$",
		search:  "if s == nil || !f.sight.sees(s) {",
		replace: "if s == nil {",
	},
	{
		name: "a policy is stored whatever its condition says", guarantee: "G12",
		file: "core/policy/command.go", pkg: "./core/policy", test: "^TestModel$",
		search:  "c.IfIndex && o != nil && o.Modified != c.Index {",
		replace: "false {",
	},
	{
		name: "a deletion of a policy leaves the rules as they were", guarantee: "G12",
		file: "core/policy/policy.go", pkg: "./core/policy", test: "^TestRulesAreCompiledOncePerChange$",
		search:  "\tt.view = nil\n\tif o != nil {",
		replace: "\tif n != nil {\n\t\tt.view = nil\n\t}\n\tif o != nil {",
	},
	{
		name: "calls without a row are served", guarantee: "G12",
		file: "calls/table.go", pkg: "./door/native", test: "^TestG12_EveryCallHasARow$",
		search:  "cluster + \"Leave\",",
		replace: "",
	},
	{
		name: "what policies allowed once is executed whatever they say now", guarantee: "G12",
		file: "core/judged.go", pkg: "./core/policy", test: "^TestG12_ACommandIsVoidOnceThePoliciesItWasJudgedByHaveChanged$",
		search:  "if c.judged == 0 ||",
		replace: "if c.judged != 0 ||",
	},
	{
		name: "the first policy does not bind what is under way", guarantee: "G12",
		file: "core/policy/policy.go", pkg: "./core/policy", test: "^TestG12_ACommandIsVoidOnceThePoliciesItWasJudgedByHaveChanged$",
		search:  "\treturn v.Index() + 1\n",
		replace: "\treturn v.Index()\n",
	},
	{
		name: "a change of a key does not say by which policies it was allowed", guarantee: "G12",
		file: "door/native/keys.go", pkg: "./door/native", test: "^TestG12_WhatIsUnderWayIsBoundByANewPolicy$",
		search:  "\tcall.Judged = d.judged(who)\n",
		replace: "",
	},
	{
		name: "a transaction does not say by which policies it was allowed", guarantee: "G12",
		file: "door/native/txn.go", pkg: "./door/native", test: "^TestG12_WhatIsUnderWayIsBoundByANewPolicy$",
		search:  "\tcall.Judged = p.judged\n",
		replace: "",
	},
	{
		name: "a claim of Juju's that is tried again is not judged again", guarantee: "G12",
		file: "door/juju/bulk.go", pkg: "./door/juju", test: "^TestG12_AClaimUnderWayIsBoundByANewPolicy$",
		search:  "if k.may(k.ops[i].Command) {",
		replace: "if true {",
	},
}
