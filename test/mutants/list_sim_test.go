package mutants

// ofWholeClusters are bugs that the simulator has to find by itself within its
// first five seeds: they prove that its checks can fail.
var ofWholeClusters = []mutant{
	{
		name: "simulated: an acknowledgement before the log is synced", guarantee: "G05",
		file: "node/appender.go", pkg: "./sim", test: "^TestSmoke$/^[0-4]$",
		search:  "return a.sync(entries, bytes)\n",
		replace: "_, _ = entries, bytes\n\treturn nil\n",
	},
	{
		name: "simulated: a follower answers an extension from its own view", guarantee: "G04",
		file: "lease/forward.go", pkg: "./sim", test: "^TestSmoke$/^[0-4]$",
		search: "\tdefault:\n\t\tc.queue = append(c.queue, w)\n\t}\n}\n",
		replace: "\tcase it.Token != 0 && e.view.LeaseByToken(it.Token) != nil:\n" +
			"\t\te.answer(w.batch, w.item, incumbent.OK, e.view.LeaseByToken(it.Token).TTL)\n" +
			"\tdefault:\n\t\tc.queue = append(c.queue, w)\n\t}\n}\n",
	},
	{
		name: "simulated: what may be appended goes again with the next leader", guarantee: "G25",
		file: "node/replica.go", pkg: "./sim", test: "^TestSmoke$/^[0-4]$",
		search:  "\tr.settleTransfer()\n\tif role.State == Leader {",
		replace: "\tr.settleTransfer()\n\tr.requeueAll(r.pendingInOrder())\n\tif role.State == Leader {",
	},
	{
		name: "simulated: a token is given twice", guarantee: "G03",
		file: "core/claim.go", pkg: "./sim", test: "^TestSmoke$/^[0-4]$",
		search:  "token := incumbent.Token(s.grantIndex())",
		replace: "token := n.LastToken + 1",
	},
	{
		name: "simulated: a claim is denied from a lagging view", guarantee: "G22",
		file: "lease/calls.go", pkg: "./sim", test: "^TestSmoke$/^[0-4]$",
		search:  "\t\tcase byRead:\n\t\t\te.reading = append(e.reading, c)\n\t\t\treturn\n",
		replace: "\t\tcase byRead:\n\t\t\te.judgeRead(c, e.term, nil)\n\t\t\treturn\n",
	},
}
