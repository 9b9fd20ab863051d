package mutants

// ofCatalog are bugs of the catalog, of the deadlines of its checks, and of what
// Consul's clients are told of either.
var ofCatalog = []mutant{
	{
		name: "an extension of a deadline stores nothing", guarantee: "G04",
		file: "lease/deadline.go", pkg: "./lease", test: "^TestG04_AnExtendedDeadlineLasts$",
		search:  "\td.deadline = max(d.deadline, b.now+b.hold(int64(d.of.After)))\n",
		replace: "\t_ = d\n",
	},
	{
		name: "a deadline is extended under any generation", guarantee: "G04",
		file: "lease/deadline.go", pkg: "./lease", test: "^TestG04_AnExtensionNamesItsDeadline$",
		search:  "d.Generation != l.Generation || !d.Extended",
		replace: "!d.Extended",
	},
	{
		name: "any deadline of a family is extended without the log", guarantee: "G04",
		file: "lease/deadline.go", pkg: "./lease", test: "^TestG04_AnExtensionNamesItsDeadline$",
		search:  "d.Generation != l.Generation || !d.Extended",
		replace: "d.Generation != l.Generation",
	},
	{
		name: "a deadline is extended while the command that ends it is under way", guarantee: "G07",
		file: "lease/judge.go", pkg: "./lease", test: "^TestG07_AnExtendedDeadlineIsConfirmed$",
		search:  "\tif d.flags&expiring != 0 {\n\t\te.holdDeadline(",
		replace: "\tif d.flags&expiring != 0 && d.of == nil {\n\t\te.holdDeadline(",
	},
	{
		name: "a transaction that fails ends sessions", guarantee: "G24",
		file: "core/txn_apply.go", pkg: "./core/catalog", test: "^TestG24_ATransactionThatFailsEndsNoSession$",
		search:  "\ts.closing = s.closing[:0]\n\tfor _, ch := range slices.Backward(",
		replace: "\tfor _, ch := range slices.Backward(",
	},
	{
		name: "what ends behind a transaction takes its tokens again", guarantee: "G03",
		file: "core/txn_apply.go", pkg: "./core/catalog", test: "^TestG03_SessionsThatATransactionEndsHandTheirLeasesOver$",
		search:  "\t\ts.granted = run.grants > 0 // what ends behind it may grant more\n",
		replace: "",
	},
	{
		name: "a transaction does not say which schema it needs", guarantee: "G28",
		file: "core/txn.go", pkg: "./core/catalog", test: "^TestG28_CatalogModel$",
		search:  "\t\t\treturn max(f.N, familySchema)\n",
		replace: "\t\t\treturn familySchema\n",
	},
	{
		name: "a critical check that is registered is taken to end no session", guarantee: "G04",
		file: "core/catalog/ends.go", pkg: "./core/catalog", test: "^TestG04_WhatMayEndASessionIsSaid$",
		search:  "return !c.identified && !c.critical",
		replace: "return !c.identified",
	},
	{
		name: "a node that is renamed is taken to end no session", guarantee: "G04",
		file: "core/catalog/ends.go", pkg: "./core/catalog", test: "^TestG04_WhatMayEndASessionIsSaid$",
		search:  "return !c.identified && !c.critical",
		replace: "return !c.critical",
	},
	{
		name: "simulated: a check that becomes critical is taken to end no session", guarantee: "G04",
		file: "core/catalog/ends.go", pkg: "./sim", test: fewSeeds,
		search:  "return c.status != Critical",
		replace: "return true",
	},
	{
		name: "a check that becomes critical is taken to end no session", guarantee: "G04",
		file: "core/catalog/ends.go", pkg: "./core/catalog", test: "^TestG04_WhatMayEndASessionIsSaid$",
		search:  "return c.status != Critical",
		replace: "return true",
	},
	{
		name: "a critical check of a node moves no index of its services", guarantee: "G28",
		file: "core/catalog/change.go", pkg: "./core/catalog", test: "^TestG28_CatalogModel$",
		search:  "\t\tt.outdate(&next, at)\n",
		replace: "\t\tt.outdate(&next, 0)\n",
	},
	{
		name: "the end of a check's ttl does not look at what began since", guarantee: "G07",
		file: "core/catalog/deadline.go", pkg: "./core/catalog", test: "^TestG28_CatalogModel$",
		search:  "o == nil || o.Since != c.Index || o.Deadline() == nil",
		replace: "o == nil || o.Deadline() == nil",
	},
	{
		name: "a session outlives the check that it depends on", guarantee: "G08",
		file: "core/catalog/change.go", pkg: "./door/consul", test: "^TestASessionEndsWithItsChecks$",
		search:  "\tif n.Status == Critical {\n\t\tt.endBound(",
		replace: "\tif n.Status >= numStatuses {\n\t\tt.endBound(",
	},
	{
		name: "who waits by hash is answered at once", guarantee: "G19",
		file: "door/consul/options.go", pkg: "./door/consul", test: "^TestBlockingByHash$",
		search:  "\t\t\tcopy(w.Not[:], b)\n",
		replace: "\t\t\t_ = b\n",
	},
	{
		name: "simulated: a pass of a check is answered before the leader has heard it", guarantee: "G04",
		file: "engine/checks.go", pkg: "./sim", test: fewSeeds,
		search:  "\t}\n\tp.e.Extend(d, func(err error) {\n",
		replace: "\t}\n\tp.done(r)\n\tp = &pass{e: p.e, call: p.call, cmd: p.cmd, done: func(core.Result) {}, tried: passesAgain}\n\tif r.Index%2 == 0 {\n\t\treturn true\n\t}\n\tp.e.Extend(d, func(err error) {\n",
	},
	{
		name: "simulated: a session outlives the check that it depends on", guarantee: "G08",
		file: "core/catalog/change.go", pkg: "./sim", test: fewSeeds,
		search:  "\tif n.Status == Critical {\n\t\tt.endBound(",
		replace: "\tif n.Status >= numStatuses {\n\t\tt.endBound(",
	},
	{
		name: "simulated: a check of a node moves no index of its services", guarantee: "G14",
		file: "core/catalog/change.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\tt.outdate(&next, at)\n",
		replace: "\t\tt.outdate(&next, 0)\n",
	},
	{
		name: "simulated: the index of what went goes with it", guarantee: "G14",
		file: "core/catalog/mark.go", pkg: "./sim", test: fewSeeds,
		search:  "\tt.dead.Set(m)\n",
		replace: "\tt.marks.Delete(m)\n",
	},
	{
		name: "simulated: a poll is answered with what was known before it", guarantee: "G22",
		file: "watch/query.go", pkg: "./sim", test: fewSeeds,
		search:  "\tif a == nil || read < w.AtLeast {\n",
		replace: "\tif a == nil {\n",
	},
}
