// Package mutants proves that the tests catch the bugs that this kind of
// software is known for. Each mutant is one such bug: a small change of one
// file, and the name of the test that must fail with it.
//
// A test that cannot fail proves nothing, and nobody sees it cease to. So the
// list is run: the module is copied, one mutant at a time is put into the copy,
// and the named test, which passed there before, has to fail. A mutant whose place has changed is an
// error, not a pass: it has to be aimed again. Each names the smallest test that
// notices it, so that two of them take seconds.
//
//	make mutants                       all of them
//	go test ./test/mutants             two, chosen by INCUMBENT_MUTANT_SEED
package mutants

import "slices"

// mutant is a known bug and who notices it.
type mutant struct {
	name      string // of the bug
	guarantee string // that it breaks, as in docs/guarantees.md
	file      string // relative to the module's root
	search    string // must be there exactly once
	replace   string
	pkg       string // whose tests must notice
	test      string // the regular expression of one test, for go test -run
}

// mutants is the whole list, of which a run chooses by seed.
var mutants = slices.Concat(
	ofOneMember, ofReplicas, ofSnapshots, ofPeers, ofTrust, ofLeases, ofUnknowns, ofRules, ofPolicies, ofOwners, ofQuotas, ofOffers, ofDisks, ofClients, ofServers, ofJuju, ofCredentials, ofVouching, ofStreams, ofKeys, ofKeysSimulated, ofTransactions, ofParts, ofDeadlines, ofBackups, ofCatalog, ofConsulLists, ofChecks, ofPolls, ofFloods, ofOVSDB, ofTables, ofWholeClusters,
)

// ofOneMember are bugs of the state, the log, leases and watches of one member.
var ofOneMember = []mutant{
	{
		name: "an expiry is not bound to its leader's term", guarantee: "G07",
		file: "lease/expire.go", pkg: "./lease", test: "^TestG07_ADeposedLeaderExpiresNothing$",
		search:  "Command: cmd.Encode(e.own()), Term: e.term, Reserve: true,",
		replace: "Command: cmd.Encode(e.own()), Reserve: true,",
	},
	{
		name: "an expiry does not look at the renewal", guarantee: "G07",
		file: "core/lease/free.go", pkg: "./core/lease", test: "^TestTranscripts$/^expire$",
		search:  "if l == nil || l.Renewal != c.renewal || l.keptByPin() && !l.Offered {",
		replace: "if l == nil || l.keptByPin() && !l.Offered {",
	},
	{
		name: "an expiry does not look at pins", guarantee: "G13",
		file: "core/lease/free.go", pkg: "./core/lease", test: "^TestG13_PinnedDoesNotExpire$",
		search:  "if l == nil || l.Renewal != c.renewal || l.keptByPin() && !l.Offered {",
		replace: "if l == nil || l.Renewal != c.renewal {",
	},
	{
		name: "a claim that extends does not raise the renewal", guarantee: "G07",
		file: "core/lease/claim.go", pkg: "./core/lease", test: "^TestTranscripts$/^expire$",
		search:  "n := l.next()\n\tn.Renewal++\n\tn.Critical = c.critical\n",
		replace: "n := l.next()\n\tn.Critical = c.critical\n",
	},
	{
		name: "the token is a counter of its lease", guarantee: "G03",
		file: "core/lease/claim.go", pkg: "./core/lease", test: "^TestG03_TokensGrow$",
		search:  "\tif token <= n.LastToken {\n",
		replace: "\tif token = n.LastToken + 1; token <= n.LastToken {\n",
	},
	{
		name: "a release with an old token frees", guarantee: "G09",
		file: "core/lease/free.go", pkg: "./core/lease", test: "^TestG09_ReleaseIsIdempotent$",
		search: "case l.Free(), c.token != 0 && c.token < uint64(l.Token):\n\t\treturn result{Lease: l}\n" +
			"\tcase c.token != 0 && c.token != uint64(l.Token), len(c.holder) > 0",
		replace: "case l.Free():\n\t\treturn result{Lease: l}\n" +
			"\tcase len(c.holder) > 0",
	},
	{
		name: "the window of idempotency keys forgets without a word", guarantee: "G25",
		file: "core/keys.go", pkg: "./core/lease", test: "^TestTranscripts$/^keys$",
		search:  "if base < s.keysFloor {",
		replace: "if false && base < s.keysFloor {",
	},
	{
		name: "an acknowledgement before the log is synced", guarantee: "G05",
		file: "node/appender.go", pkg: "./node", test: "^TestG05_NothingIsAnsweredBeforeItsSync$",
		search:  "return a.sync(entries, bytes)\n",
		replace: "_, _ = entries, bytes\n\treturn nil\n",
	},
	{
		name: "a sync of the log that does not sync", guarantee: "G05",
		file: "wal/wal.go", pkg: "./wal", test: "^TestModel$",
		search:  "if err := l.file.Sync(); err != nil {\n\t\treturn l.fail(fatal(\"syncing \"+l.cur().name, err))",
		replace: "if err := error(nil); err != nil {\n\t\treturn l.fail(fatal(\"syncing \"+l.cur().name, err))",
	},
	{
		name: "a failed sync is tried again", guarantee: "G31",
		file: "wal/wal.go", pkg: "./wal", test: "^TestG31_FailedSyncIsFinal$",
		search:  "if err := l.file.Sync(); err != nil {\n\t\treturn l.fail(fatal(\"syncing \"+l.cur().name, err))",
		replace: "if err := l.file.Sync(); err != nil {\n\t\treturn fatal(\"syncing \"+l.cur().name, err)",
	},
	{
		name: "a snapshot is named before it is synced", guarantee: "G05",
		file: "node/snapfolder.go", pkg: "./node", test: "^(TestKillDuringSnapshot|TestG26_RestartShowsWhatWasAcknowledged)$",
		search:  "return w, f.Sync()\n",
		replace: "return w, nil\n",
	},
	{
		name: "the id of a read confirmation is used again", guarantee: "G22",
		file: "node/reads.go", pkg: "./node", test: "^TestG22_LateAnswerConfirmsNothing$",
		search:  "\trd.nextID++\n",
		replace: "",
	},
	{
		name: "a confirmation is answered before its index is applied", guarantee: "G22",
		file: "node/reads.go", pkg: "./node", test: "^TestG22_AFollowerReadsWhatTheLeaderCommitted$",
		search:  "for len(rd.applying) > 0 && rd.applying[0].index <= r.applied {",
		replace: "for len(rd.applying) > 0 {",
	},
	{
		name: "an extension is judged before it is confirmed", guarantee: "G04",
		file: "lease/judge.go", pkg: "./lease", test: "^TestG04_AnExtensionWaitsForALaterConfirmation$",
		search:  "\te.waiting = append(e.waiting, b)\n",
		replace: "\te.judge(b)\n",
	},
	{
		name: "the time for which the leader stood still counts", guarantee: "G07",
		file: "lease/book.go", pkg: "./lease", test: "^TestBookModel$",
		search:  "\t\tb.shift += gap\n",
		replace: "",
	},
	{
		name: "a new leader does not give leases their full ttl", guarantee: "G06",
		file: "lease/book.go", pkg: "./lease", test: "^TestG06_ANewLeaderStartsAtFullTTL$",
		search:  "i := b.putLease(l)\n\t\t\tb.raiseTo(leaseRef(i), b.now+b.giveBack)\n",
		replace: "i := b.putLease(l)\n\t\t\tb.leases[i].deadline = b.now\n",
	},
	{
		name: "the history of watches grows without bound", guarantee: "G18",
		file: "watch/history.go", pkg: "./watch", test: "^TestG18_ASlowReaderIsCutOffAndNobodyNotices$",
		search:  "for h.bytes.Load() > limit && s.tail",
		replace: "for h.bytes.Load() > limit && false && s.tail",
	},
	{
		name: "a watch that resumes skips an event", guarantee: "G16",
		file: "watch/history.go", pkg: "./watch", test: "^TestG15_G16_G17_G18_ReadersMatchANaiveList$",
		search:  "\treturn lo - 1\n",
		replace: "\treturn min(lo, s.head)\n",
	},
}
