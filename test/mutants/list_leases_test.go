package mutants

// ofLeases are bugs of leases, sessions and their commands where several members
// serve.
var ofLeases = []mutant{
	{
		name: "a follower answers an extension from its own view", guarantee: "G04",
		file: "lease/forward.go", pkg: "./lease", test: "^TestClusterTranscripts$/^forward$",
		search: "\tdefault:\n\t\tc.queue = append(c.queue, w)\n\t}\n}\n",
		replace: "\tcase it.Token != 0 && e.view.LeaseByToken(it.Token) != nil:\n" +
			"\t\te.answer(w.batch, w.item, incumbent.OK, e.view.LeaseByToken(it.Token).TTL)\n" +
			"\tdefault:\n\t\tc.queue = append(c.queue, w)\n\t}\n}\n",
	},
	{
		name: "extensions of an older term are served", guarantee: "G04",
		file: "lease/serve.go", pkg: "./lease", test: "^TestAnAskOfAnotherTermIsTurnedAway$",
		search:  "case e.leading && f.term == e.term:",
		replace: "case e.leading:",
	},
	{
		name: "the answer of a leader of an older term counts", guarantee: "G04",
		file: "lease/engine.go", pkg: "./lease", test: "^TestG04_AConfirmationOfAnotherTermJudgesNothing$",
		search:  "if err != nil || term != e.term {",
		replace: "if err != nil {",
	},
	{
		name: "an expiry relies on a confirmation begun before it was due", guarantee: "G07",
		file: "lease/engine.go", pkg: "./lease", test: "^TestG07_ADeposedLeaderExpiresNothing$",
		search:  "\te.expiry.confirmed()\n",
		replace: "\te.findDue()\n\te.expiry.confirm()\n\te.expiry.confirmed()\n",
	},
	{
		name: "an expiry does not wait for the barrier", guarantee: "G07",
		file: "lease/expire.go", pkg: "./lease", test: "^TestG07_StoppedForThreeTTLs$",
		search:  "func (p *pipeline) confirmed() { p.heard, p.confirming = move(p.heard, p.confirming) }",
		replace: "func (p *pipeline) confirmed() { p.ready, p.confirming = move(p.ready, p.confirming) }",
	},
	{
		name: "an extension is answered while its expiry is under way", guarantee: "G04",
		file: "lease/judge.go", pkg: "./lease", test: "^TestG07_ADeposedLeaderExpiresNothing$",
		search:  "if l.flags&expiring != 0 || l.touched > 0 {",
		replace: "if l.touched > 0 {",
	},
	{
		name: "a token that is not applied yet is called lost", guarantee: "G04",
		file: "lease/judge.go", pkg: "./lease", test: "^TestClusterTranscripts$/^forward$",
		search:  "case it.Token != 0 && incumbent.Index(it.Token) > e.view.Index():",
		replace: "case false:",
	},
	{
		name: "a longer ttl is acknowledged before it is logged", guarantee: "G05",
		file: "lease/judge.go", pkg: "./lease", test: "^TestG05_NothingIsAcknowledgedWithoutAQuorum$",
		search:  "\tcase int64(it.TTL) > nanos(l.ttl):\n\t\te.raiseLease(l.token, b, i)\n\tdefault:",
		replace: "\tcase int64(it.TTL) > nanos(l.ttl):\n\t\te.answer(b, i, incumbent.OK, it.TTL)\n\tdefault:",
	},
	{
		name: "an extension overtakes a release by way of its member", guarantee: "G09",
		file: "lease/forward.go", pkg: "./lease", test: "^TestClusterTranscripts$/^forward$",
		search:  "\tif e.marks[k] == 0 {\n\t\treturn false\n\t}\n\te.hold(k, w)\n",
		replace: "\tif e.marks[k] >= 0 {\n\t\treturn false\n\t}\n\te.hold(k, w)\n",
	},
	{
		name: "a claim overtakes what its client sent before", guarantee: "G09",
		file: "lease/guard.go", pkg: "./lease", test: "^TestTranscripts$/^order$",
		search:  "\treturn g != nil && (len(g.logged) > maxGuarded ||\n",
		replace: "\treturn g != nil && len(g.logged) > maxGuarded && (len(g.logged) > maxGuarded ||\n",
	},
	{
		name: "a claim is denied from a lagging view", guarantee: "G22",
		file: "lease/calls.go", pkg: "./lease", test: "^TestG05_NothingIsAcknowledgedWithoutAQuorum$",
		search:  "\t\tcase byRead:\n\t\t\te.reading = append(e.reading, c)\n\t\t\treturn\n",
		replace: "\t\tcase byRead:\n\t\t\te.judgeRead(c, e.term, nil)\n\t\t\treturn\n",
	},
	{
		name: "the time for clients to return is ignored", guarantee: "G06",
		file: "lease/book.go", pkg: "./lease", test: "^TestG06_ANewLeaderStartsAtFullTTL$",
		search:  "\t\t\tb.raiseTo(leaseRef(i), b.now+b.giveBack)\n",
		replace: "\t\t\t_ = i\n",
	},
	{
		name: "a clock that is allowed to be slow loses its lease", guarantee: "G02",
		file: "lease/book.go", pkg: "./lease", test: "^TestG02_NoGrantBeforeTheHoldersDeadline$",
		search:  "return ttl + ttl/1e6*b.rho + b.grace }",
		replace: "return ttl - ttl/1e6*b.rho }",
	},
	{
		name: "each slow round moves the deadlines", guarantee: "G08",
		file: "lease/book.go", pkg: "./lease", test: "^TestG08_SlownessMovesNoDeadline$",
		search:  "tolerated: int64(max(Bucket, cfg.Grace)),",
		replace: "tolerated: int64(Bucket),",
	},
	{
		name: "a lease is handed to a waiter that is not there", guarantee: "G08",
		file: "lease/next.go", pkg: "./lease", test: "^TestTranscripts$/^offers$",
		search:  "\treturn e.book.now-s.heard <= third\n",
		replace: "\treturn e.book.now-s.heard <= third || third > 0\n",
	},
	{
		name: "the lower counter of an attachment wins at the leader", guarantee: "G04",
		file: "lease/serve.go", pkg: "./lease", test: "^TestClusterTranscripts$/^attach$",
		search:  "if old != nil && old.Counter >= c.counter {",
		replace: "if old != nil && old.Counter <= c.counter {",
	},
	{
		name: "a new leader is not told of attachments", guarantee: "G04",
		file: "lease/role.go", pkg: "./lease", test: "^TestClusterTranscripts$/^attach$",
		search:  "\t\te.announce()\n",
		replace: "",
	},
	{
		name: "an attachment is answered from an older state than the leader's", guarantee: "G14",
		file: "lease/forward.go", pkg: "./lease", test: "^TestG14_AnAttachmentWaitsForTheLeadersState$",
		search:  "if w.batch.shows() && a.kind == incumbent.OK && e.view.Index() < index {",
		replace: "if false && w.batch.shows() && a.kind == incumbent.OK && e.view.Index() < index {",
	},
	{
		name: "a claim is answered from an older state than the leader's", guarantee: "G14",
		file: "lease/forward.go", pkg: "./lease", test: "^TestG14_AClaimWaitsForTheLeadersState$",
		search:  "return b.attach != nil || b.call != nil",
		replace: "return b.attach != nil",
	},
	{
		name: "a claim on another member is no sign of life of its session", guarantee: "G02",
		file: "core/claim.go", pkg: "./lease", test: "^TestG02_AClaimElsewhereIsASignOfLife$",
		search:  "\ts.putAlive(Granted, l, n, c.session)\n",
		replace: "\ts.put(Change{What: Granted, LeaseBefore: l, Lease: n})\n",
	},
	{
		name: "commands of one entry share a token", guarantee: "G03",
		file: "core/state.go", pkg: "./core", test: "^TestTokensOfOneBatchDiffer$",
		search:  "\t\tresults[i] = s.apply(b)\n",
		replace: "\t\tresults[i] = s.apply(b)\n\t\tif i < len(cmds)-1 {\n\t\t\ts.index--\n\t\t}\n",
	},
	{
		name: "grants of one command share a token", guarantee: "G03",
		file: "core/claim.go", pkg: "./core", test: "^TestTranscripts$/^session$",
		search:  "\tif s.granted {\n\t\ts.index++\n\t\ts.at = s.index\n\t}\n",
		replace: "",
	},
	{
		name: "what follows a further grant is told under the command's first index", guarantee: "G15",
		file: "core/state.go", pkg: "./core", test: "^TestG15_IndexesOfOneCommandNeverFall$",
		search:  "ch.Index, ch.Origin = s.at, s.origin()\n\ts.changes",
		replace: "ch.Index, ch.Origin = s.first, s.origin()\n\tif ch.What == Offered {\n\t\tch.Index = s.at\n\t}\n\ts.changes",
	},
	{
		name: "a further grant does not raise the index that changes are told under", guarantee: "G15",
		file: "core/claim.go", pkg: "./core", test: "^TestG15_IndexesOfOneCommandNeverFall$",
		search:  "\t\ts.at = s.index\n\t}\n\ts.granted = true\n\treturn incumbent.Token(s.at)\n",
		replace: "\t}\n\ts.granted = true\n\treturn incumbent.Token(s.index)\n",
	},
	{
		name: "the places that a hand-over passes over are not bounded", guarantee: "G08",
		file: "core/queue.go", pkg: "./core", test: "^TestWorkOfSmallCommandsIsBounded$",
		search:  "if passed++; passed > MaxAbsent {",
		replace: "if passed++; passed < 0 {",
	},
	{
		name: "what a name may contain is asked of the toolchain", guarantee: "G28",
		file: "incumbent.go", pkg: "./.", test: "^TestG28_WhatANameMayContainIsFrozen$",
		search:  "\tif at, r := PlainText(s); at >= 0 {\n",
		replace: "\tfor at, r := range s {\n\t\tif strconv.IsPrint(r) {\n\t\t\tcontinue\n\t\t}\n",
	},
	{
		name: "the texts of kept errors are part of the state", guarantee: "G27",
		file: "core/record.go", pkg: "./core", test: "^TestG27_KeptErrorsHaveNoTexts$",
		search:  "\t\te.Uint(3, uint64(r.Err.Kind))\n",
		replace: "\t\te.Uint(3, uint64(r.Err.Kind))\n\t\te.Text(4, r.Err.Message)\n",
	},
	{
		name: "the renewals of a session begin at 1", guarantee: "G07",
		file: "core/session.go", pkg: "./core", test: "^TestG07_ExpiryNeverHitsALaterSession$",
		search:  "TTL: ttl, Renewal: uint64(s.first), Opened:",
		replace: "TTL: ttl, Renewal: 1, Opened:",
	},
	{
		name: "a new epoch does not raise the index", guarantee: "G03",
		file: "core/state.go", pkg: "./core", test: "^TestG03_G14_EpochExceedsWhatWasLost$",
		search:  "\t\tto = max(to, NextEpoch(s.first))\n",
		replace: "\t\tto = max(to, s.first+1)\n",
	},
	{
		name: "the id of a removed member comes back", guarantee: "G33",
		file: "core/member.go", pkg: "./core", test: "^TestG33_MembersModel$",
		search:  "\tif s.gone(n.ID) {\n\t\treturn incumbent.Errorf(incumbent.Conflict,",
		replace: "\tif false {\n\t\treturn incumbent.Errorf(incumbent.Conflict,",
	},
	{
		name: "a command that an older member does not know is executed", guarantee: "G28",
		file: "core/state.go", pkg: "./core", test: "^TestUnknownSchemaIsFatal$",
		search:  "if len(s.members) > 0 && c.schema > active {",
		replace: "if false && c.schema > active {",
	},
	{
		name: "a grant is not in the history behind which more comes", guarantee: "G29",
		file: "core/history.go", pkg: "./core", test: "^TestTranscripts$/^history$",
		search:  "\t\tb, l.granted = grant.pack(b), 0\n",
		replace: "\t\t_, l.granted = grant.pack(b), 0\n",
	},
	{
		name: "a restored record has the grant in its history twice", guarantee: "G29",
		file: "core/restore_lease.go", pkg: "./core", test: "^TestG29_SnapshotAndTailEqualTheLog$",
		search:  "\tl.granted = 0\n\tr.seldom.past",
		replace: "\tr.seldom.past",
	},
	{
		name: "a row of a view is written to", guarantee: "G28",
		file: "core/rows.go", pkg: "./core", test: "^TestRowsModel$",
		search:  "\tcase n != nil && n.edit == t.edit:\n",
		replace: "\tcase n != nil:\n",
	},
	{
		name: "of names with the same number one leaves and the next is lost", guarantee: "G28",
		file: "core/directory.go", pkg: "./core", test: "^TestNamesThatMeet$",
		search:  "\tbefore.after = e.after\n",
		replace: "\tbefore.after = 0\n",
	},
	{
		name: "entries that a snapshot covers are kept without a bound on their bytes", guarantee: "G39",
		file: "node/memlog.go", pkg: "./node", test: "^TestG39_TailIsBoundedInBytes$",
		search:  " > tail || bytes > MaxTailBytes {",
		replace: " > tail {",
	},
}
