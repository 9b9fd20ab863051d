package mutants

// ofPolls are bugs in how the door for Consul's clients puts changes before those who
// watch, and refuses, and in what the load tool holds against it.
var ofPolls = []mutant{
	{
		name: "what Consul's clients are refused is told at once", guarantee: "G41",
		file: "door/consul/heldback.go", pkg: "./door/consul", test: "^TestG41_WhoAsksAgainAtOnceIsSlowed$",
		search:  "if pause == 0 || !d.held.Take(int64(r.size)) {",
		replace: "if !d.held.Take(int64(r.size)) || true {",
	},
	{
		name: "what is held back at Consul's door outlives its connection", guarantee: "G39",
		file: "door/consul/shared.go", pkg: "./door/consul", test: "^TestG39_WhatIsHeldBackEndsWithItsConnection$",
		search:  "\t_ = r.letGo() // nobody is told\n",
		replace: "",
	},
	{
		name: "what comes of a request that is held back is kept", guarantee: "G39",
		file: "door/consul/conn.go", pkg: "./door/consul", test: "^TestG41_ARefusalIsHeldBack$",
		search:  "\t\t\tif c.in == nil { // else that is refused",
		replace: "\t\t\tif true { // else that is refused",
	},
	{
		name: "what is refused unread is overtaken by the next request", guarantee: "G41",
		file: "door/consul/heldback.go", pkg: "./door/consul", test: "^TestWhatIsHeldBackIsAnsweredInOrder$",
		search:  "if !r.conn.owes(r) {",
		replace: "if false {",
	},
	{
		name: "changes queue behind the reads of all who watch", guarantee: "G40",
		file: "door/consul/request.go", pkg: "./door/consul", test: "^TestChangesDoNotQueueBehindReads$",
		search:  "\t\tr.door.changes.Put(job)\n",
		replace: "\t\tr.door.work.Put(job)\n",
	},
	{
		name: "a read that waits keeps its place in a lane", guarantee: "G40",
		file: "door/consul/request.go", pkg: "./door/consul", test: "^TestABlockedReadKeepsNoPlace$",
		search:  "\tif r.opts.blocking() {\n\t\t// To have it wait",
		replace: "\tif false {\n\t\t// To have it wait",
	},
	{
		name: "the load tool takes an index that goes back", guarantee: "G14",
		file: "bench/consul_watch.go", pkg: "./bench", test: "^TestConsulWatchRuns$",
		search:  "\tif a.index < p.index {\n",
		replace: "\tif false {\n",
	},
	{
		name: "the load tool takes a version that has less than the one before", guarantee: "G14",
		file: "bench/consul_versions.go", pkg: "./bench", test: "^TestVersionsTellWhoWasEarly$",
		search:  "\t\tordered = index < v.last || newest >= last.newest\n",
		replace: "",
	},
	{
		name: "a body at Consul's door has two ends", guarantee: "G47",
		file: "door/consul/parse.go", pkg: "./door/consul", test: "^TestG47_BodiesWithTwoEndsAreRefused$",
		search:  "len(r.TransferEncoding) > 0 && hasHeader(head, \"content-length\") || ",
		replace: "",
	},
	{
		name: "chunks of a client that knows none are requests of their own", guarantee: "G47",
		file: "door/consul/parse.go", pkg: "./door/consul", test: "^TestG47_BodiesWithTwoEndsAreRefused$",
		search:  " || !r.ProtoAtLeast(1, 1) && hasHeader(head, \"transfer-encoding\")",
		replace: "",
	},
}
