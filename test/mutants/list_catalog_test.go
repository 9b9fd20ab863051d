package mutants

// ofConsulLists are bugs of what Consul's clients are told of the catalog.
var ofConsulLists = []mutant{
	{
		name: "a right to a service is none to its name in another case", guarantee: "G12",
		file: "auth/rules.go", pkg: "./auth", test: "^TestG12_RightsToOneNameAreThose$",
		search:  "\t\tname.text = incumbent.Fold(name.text)\n",
		replace: "\t\tname.text += \"\"\n",
	},
	{
		name: "whoever may write one case of a name writes the others without a right", guarantee: "G12",
		file: "auth/authorize.go", pkg: "./door/consul", test: "^TestG12_NoOtherCaseOfANameIsFree$",
		search:  "\t\tn.Lease = incumbent.Fold(n.Lease)\n",
		replace: "\t\tn.Lease += \"\"\n",
	},
	{
		name: "who waits for a service does not hear of it in another case", guarantee: "G15",
		file: "core/catalog/topic.go", pkg: "./door/consul", test: "^TestAWatchOfANameInAnotherCase$",
		search:  "serviceScope}, Name: incumbent.Fold(name)}",
		replace: "serviceScope}, Name: name}",
	},
	{
		name: "a check keeps the deadline of its id in another case", guarantee: "G07",
		file: "core/catalog/deadline.go", pkg: "./core/catalog", test: "^TestADeadlineIsOneWhateverTheCase$",
		search:  "incumbent.Fold(c.Node) + \"\\x00\" + incumbent.Fold(c.ID)",
		replace: "c.Node + \"\\x00\" + c.ID",
	},
	{
		name: "an older view takes the place of a newer list", guarantee: "G14",
		file: "door/consul/lists.go", pkg: "./door/consul", test: "^TestAListOfAnOlderView$",
		search:  "\tcase b.now != nil && index < b.seen: // an older view: the newer list stays\n\t\treturn l\n",
		replace: "",
	},
	{
		name: "what a list does not show moves its index", guarantee: "G19",
		file: "door/consul/lists.go", pkg: "./door/consul", test: "^TestAFlapWakesTheWatchersOfItsServiceAlone$",
		search:  "case b.now != nil && l.hash == b.now.hash:",
		replace: "case b.now != nil && l == b.now:",
	},
	{
		name: "a joined checksum takes a run for one byte", guarantee: "G15",
		file: "door/consul/splice.go", pkg: "./door/consul", test: "^TestAListOfRunsIsTheWholeList$",
		search:  "crc = crcJoin(crc, r.crc, r.shift)",
		replace: "crc = crcJoin(crc, r.crc, shift)",
	},
	{
		name: "each pass of a check is written to the log", guarantee: "G19",
		file: "door/consul/agent_checks.go", pkg: "./door/consul", test: "^TestChecksOfTheAgent$",
		search:  "r.door.engine.Pass(call, cmd, ",
		replace: "r.door.engine.Execute(call, cmd, ",
	},
	{
		name: "two prepared queries may have one name", guarantee: "G29",
		file: "prepared/keys.go", pkg: "./prepared", test: "^TestAChangeOfWhatChangedDoesNothing$",
		search:  "\t\tis(name, there(name))\n",
		replace: "\t\t_ = there\n",
	},
	{
		name: "a change of a prepared query holds for what another has made of it", guarantee: "G29",
		file: "prepared/keys.go", pkg: "./prepared", test: "^TestAChangeOfAnOlderQueryDoesNothing$",
		search:  "since = incumbent.Index(c.Was.ModifyIndex)",
		replace: "since = there(Key(c.Of, id))",
	},
	{
		name: "a prepared query outlives its session", guarantee: "G10",
		file: "prepared/keys.go", pkg: "./prepared", test: "^TestSessions$",
		search:  "put.Verb, put.Session, put.OnEnd = kv.Acquire, id, kv.Delete",
		replace: "put.Verb, put.Session, put.OnEnd = kv.Acquire, id, kv.Keep",
	},
	{
		name: "a prepared query shows all of a service to everybody", guarantee: "G12",
		file: "door/consul/query.go", pkg: "./door/consul", test: "^TestG12_QueriesAndRights$",
		search:  "if !seen.of(i.Service.Node, i.Service.Name) {",
		replace: "if false {",
	},
	{
		name: "that a list is not whole is not told when nothing that it shows changes", guarantee: "G12",
		file: "door/consul/shared.go", pkg: "./door/consul", test: "^TestG12_AListOfKeysSaysWhetherItIsWhole$",
		search:  "\t\t\t\tres.hash[0] ^= 1\n",
		replace: "",
	},
	{
		name: "who begins to wait when the member leaves waits on", guarantee: "G22",
		file: "door/consul/shared.go", pkg: "./door/consul", test: "^TestWhoWaitsLateIsAnsweredToo$",
		search:  "\t\twant.After, want.Not, want.For = 0, watch.Hash{}, 0\n",
		replace: "",
	},
	{
		name: "a key that is not there has no index", guarantee: "G14",
		file: "door/consul/kv_read.go", pkg: "./door/consul", test: "^TestG14_AKeyThatIsNotThereHasAnIndex$",
		search:  "return result{status: http.StatusNotFound, index: max(gone, 1)}",
		replace: "return result{status: http.StatusNotFound, index: min(gone, 0)}",
	},
	{
		name: "a list shows instances of services that its caller may not see", guarantee: "G12",
		file: "door/consul/kinds.go", pkg: "./door/consul", test: "^TestG12_ListsShowWhatTheirCallerMaySee$",
		search:  "return s.of(i.Service.Node, i.Service.Name)",
		replace: "return s.node(i.Service.Node)",
	},
	{
		name: "callers who may see different things share a list", guarantee: "G12",
		file: "door/consul/sights.go", pkg: "./door/consul", test: "^TestG12_ListsShowWhatTheirCallerMaySee$",
		search:  "return s.nodes.Key() + \"\\x00\" + s.services.Key()",
		replace: "return \"\"",
	},
	{
		name: "a restore leaves what its snapshot does not have", guarantee: "G14",
		file: "door/consul/restore.go", pkg: "./door/consul", test: "^TestG14_ARunningClusterTakesASnapshot$",
		search:  "\tp.deregister()\n",
		replace: "",
	},
	{
		name: "the agent's node goes with a restore", guarantee: "G14",
		file: "door/consul/restore.go", pkg: "./door/consul", test: "^TestG14_ARunningClusterTakesASnapshot$",
		search:  "return incumbent.Alike(node, p.door.cfg.Node) || slices",
		replace: "return slices",
	},
}
