package mutants

// A few seeds each are the runs of the simulator in which it has to notice a bug
// by itself: the first five, or the first five of the thirty that do.
const (
	fewSeeds   = "^TestSmoke$/^[0-4]$"
	nextSeeds  = "^TestSmoke$/^[5-9]$"
	laterSeeds = "^TestSmoke$/^(17|20)$"
)

// ofWholeClusters are bugs that the simulator has to find by itself within a few
// seeds: they prove that its checks can fail.
var ofWholeClusters = []mutant{
	{
		name: "simulated: an acknowledgement before the log is synced", guarantee: "G05",
		file: "node/appender.go", pkg: "./sim", test: fewSeeds,
		search:  "return a.sync(entries, bytes)\n",
		replace: "_, _ = entries, bytes\n\treturn nil\n",
	},
	{
		name: "simulated: a follower answers an extension from its own view", guarantee: "G04",
		file: "lease/forward.go", pkg: "./sim", test: fewSeeds,
		search: "\tdefault:\n\t\tby := w.batch.arrived + int64(e.patience(w))\n",
		replace: "\tcase it.Token != 0 && leases.Of(e.view).ByToken(it.Token) != nil:\n" +
			"\t\te.answer(w.batch, w.item, incumbent.OK, leases.Of(e.view).ByToken(it.Token).TTL)\n" +
			"\tdefault:\n\t\tby := w.batch.arrived + int64(e.patience(w))\n",
	},
	{
		name: "simulated: what may be appended goes again with the next leader", guarantee: "G25",
		file: "node/replica.go", pkg: "./sim", test: fewSeeds,
		search:  "\tr.settleTransfer()\n\tif role.State == Leader {",
		replace: "\tr.settleTransfer()\n\tr.requeueAll(r.pendingInOrder())\n\tif role.State == Leader {",
	},
	{
		name: "simulated: a token is given twice", guarantee: "G03",
		file: "core/lease/claim.go", pkg: "./sim", test: fewSeeds,
		search:  "\tif token <= n.LastToken {\n",
		replace: "\tif token = n.LastToken + 1; token <= n.LastToken {\n",
	},
	{
		name: "simulated: a claim is denied from a lagging view", guarantee: "G22",
		file: "lease/submit.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\tcase byRead:\n\t\t\te.reading = append(e.reading, c)\n\t\t\treturn\n",
		replace: "\t\tcase byRead:\n\t\t\te.judgeRead(c, e.term, nil)\n\t\t\treturn\n",
	},
	{
		name: "simulated: a new leader does not give leases their full ttl", guarantee: "G06",
		file: "lease/book.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\t\tb.raiseTo(leaseRef(i), b.now+b.giveBack)\n",
		replace: "\t\t\tb.leases[i].deadline = b.now\n\t\t\tb.arm(leaseRef(i))\n",
	},
	{
		name: "simulated: an expiry is forwarded to the next leader", guarantee: "G07",
		file: "lease/expire.go", pkg: "./sim", test: laterSeeds,
		search:  "Command: cmd.Encode(e.own()), Term: e.term, Reserve: true,",
		replace: "Command: cmd.Encode(e.own()), Reserve: true,",
	},
	{
		name: "simulated: what is being revoked is extended", guarantee: "G08",
		file: "lease/judge.go", pkg: "./sim", test: nextSeeds,
		search:  "\tcase l.flags&revoking != 0:\n\t\te.answer(b, i, incumbent.NotHolder, 0)\n",
		replace: "",
	},
	{
		name: "simulated: an attachment is answered from an older state than the leader's", guarantee: "G14",
		file: "lease/forward.go", pkg: "./sim", test: fewSeeds,
		search:  "if (w.batch.shows() && a.kind == incumbent.OK || w.apart(a.kind)) && e.view.Index() < index {",
		replace: "if false && (w.batch.shows() && a.kind == incumbent.OK || w.apart(a.kind)) && e.view.Index() < index {",
	},
	{
		name: "simulated: doors open before a confirmation begun after the start", guarantee: "G26",
		file: "node/manual.go", pkg: "./sim", test: fewSeeds,
		search:  "\tn.replica.Confirm(n.confirmedStart)\n",
		replace: "\tn.confirmedStart(0, nil)\n",
	},
	{
		name: "simulated: reads rely on the leader's clock", guarantee: "G22",
		file: "node/replica.go", pkg: "./sim", test: fewSeeds,
		search:  "raft.ReadOnlySafe,",
		replace: "raft.ReadOnlyLeaseBased,",
	},
	{
		name: "simulated: a follower reads at its own commit index", guarantee: "G22",
		file: "node/reads.go", pkg: "./sim", test: fewSeeds,
		search:  "r.confirmed(rs.Index, ",
		replace: "r.confirmed(min(rs.Index, r.commit), ",
	},
	{
		name: "simulated: an unknown outcome is answered as unavailable", guarantee: "G25",
		file: "node/pending.go", pkg: "./sim", test: nextSeeds,
		search:  "incumbent.Errorf(incumbent.Unknown, \"%s\", why)",
		replace: "incumbent.Errorf(incumbent.Unavailable, \"%s\", why)",
	},
}
