package mutants

// ofTransactions are bugs of several things or none.
var ofTransactions = []mutant{
	{
		name: "nothing that an extension waits for begins with a term", guarantee: "G04",
		file: "node/reads.go", pkg: "./node", test: "^TestG04_TheBeginningOfATermIsAhead$",
		search:  "\t\treturn nil // a change of members, or the beginning of a term\n",
		replace: "\t\treturn [][]byte{}\n",
	},
	{
		name: "of entries that the machine has not applied only the first is told", guarantee: "G04",
		file: "node/reads.go", pkg: "./node", test: "^TestG04_WhatIsAheadIsToldOnce$",
		search:  "\t\trd.told++\n",
		replace: "\t\tif rd.told++; len(a.Entries) > 0 {\n\t\t\tcontinue\n\t\t}\n",
	},
	{
		name: "a tail that raft has given up is told of as committed", guarantee: "G04",
		file: "node/reads.go", pkg: "./node", test: "^TestG04_AStaleTailIsNotAhead$",
		search:  "r.stale.below(min(r.commit, r.log.last()))",
		replace: "min(r.commit, r.log.last())",
	},
	{
		name: "reads do not wait for what is ahead of the machine", guarantee: "G22",
		file: "node/reads.go", pkg: "./node", test: "^TestG04_WhatIsAheadIsToldOnce$",
		search:  "rd.applying[0].index <= r.applied",
		replace: "rd.applying[0].index <= r.commit",
	},
	{
		name: "what a transaction does otherwise is taken to commute with extensions", guarantee: "G04",
		file: "core/commute.go", pkg: "./core/kv", test: "^TestG04_KeysCommuteWithExtensions$",
		search:  "[]steps{t.then, t.otherwise}",
		replace: "[]steps{t.then}",
	},
	{
		name: "a last part is believed that it commutes with extensions", guarantee: "G04",
		file: "core/parts/apply.go", pkg: "./core/kv", test: "^TestG04_KeysCommuteWithExtensions$",
		search:  "if p.commutes && !x.Commutes(whole) {",
		replace: "if false {",
	},
	{
		name: "a holder is known by any token it ever had", guarantee: "G24",
		file: "core/lease/transaction.go", pkg: "./door/native", test: "^TestG24_OnlyTheHolderWrites$",
		search:  "token > 0 && l.Token == token",
		replace: "token > 0 && l.Token >= token",
	},
	{
		name: "the indexes of a failed transaction are not given back", guarantee: "G24",
		file: "core/txn_apply.go", pkg: "./core/kv", test: "^TestG24_ATransactionIsItsOperationsOrNothing$",
		search:  "\ts.index, s.at = s.first, s.first\n",
		replace: "\ts.at = s.first\n",
	},
	{
		name: "what a failed transaction did to leases stays", guarantee: "G24",
		file: "core/lease/transaction.go", pkg: "./core/kv", test: "^TestG24_ATransactionIsItsOperationsOrNothing$",
		search:  "\tt.shared, t.derived = m.shared, m.derived\n",
		replace: "",
	},
	{
		name: "a name that a failed transaction claimed stays in the directory", guarantee: "G24",
		file: "core/lease/transaction.go", pkg: "./core/kv", test: "^TestG24_ATransactionIsItsOperationsOrNothing$",
		search:  "\tt.directory.settle(back)\n",
		replace: "\tt.directory.settle(false)\n",
	},
	{
		name: "a session that a failed transaction renewed stays renewed", guarantee: "G24",
		file: "core/txn_apply.go", pkg: "./core/kv", test: "^TestG24_ATransactionIsItsOperationsOrNothing$",
		search:  "\t\t\ts.putSession(ch.SessionBefore)\n",
		replace: "",
	},
	{
		name: "keys are not marked before a transaction changes them", guarantee: "G24",
		file: "core/txn_apply.go", pkg: "./core/kv", test: "^TestG24_ATransactionIsItsOperationsOrNothing$",
		search:  "\tg.mark(f, last)\n",
		replace: "",
	},
	{
		name: "a failed transaction forgets how many keys a session has locked", guarantee: "G24",
		file: "core/kv/transaction.go", pkg: "./core/kv", test: "^TestG24_ATransactionIsItsOperationsOrNothing$",
		search:  "\t\t\tt.marked.counts[id] = was\n",
		replace: "",
	},
	{
		name: "what a failed transaction did is told", guarantee: "G15",
		file: "core/txn_apply.go", pkg: "./core/kv", test: "^TestG24_ATransactionIsItsOperationsOrNothing$",
		search:  "\ts.changes = s.changes[:run.changes]\n",
		replace: "",
	},
	{
		name: "grants of one transaction are told under indexes of their own", guarantee: "G15",
		file: "core/txn_apply.go", pkg: "./door/native", test: "^TestG15_ATransactionIsWatchedWhole$",
		search:  "\t\ts.at = s.index\n\t}\n",
		replace: "\t}\n",
	},
	{
		name: "two grants of one transaction share a token", guarantee: "G03",
		file: "core/txn_apply.go", pkg: "./door/native", test: "^TestG15_ATransactionIsWatchedWhole$",
		search:  "incumbent.Token(first) + incumbent.Token(run.grants) - 1",
		replace: "incumbent.Token(first)",
	},
	{
		name: "a repeated transaction is answered from a view", guarantee: "G25",
		file: "door/native/txn.go", pkg: "./door/native", test: "^TestG22_ATransactionThatChangesNothingCostsNoEntry$",
		search:  "o.first(), p.reads(), done)\n",
		replace: "true, p.reads(), done)\n",
	},
	{
		name: "a transaction reads what this member has, and asks nobody", guarantee: "G22",
		file: "engine/write.go", pkg: "./door/native", test: "^TestG22_ATransactionReadsAConfirmedView$",
		search:  "\tw.Confirm(func(err error) {\n\t\tw.Run(func() {\n",
		replace: "\tw.Run(func() {\n\t\tvar err error\n\t\tw.Run(func() {\n",
	},
	{
		name: "a transaction reads without a bound", guarantee: "G39",
		file: "core/txn_play.go", pkg: "./core/kv", test: "^TestTransactionsAreBounded$",
		search:  "\tr.records++\n",
		replace: "",
	},
}
