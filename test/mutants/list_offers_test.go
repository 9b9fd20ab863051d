package mutants

// ofOffers are bugs in what is handed over: when an offer is a holding, and what may
// end it then.
var ofOffers = []mutant{
	{
		name: "an offer counts as held before it is accepted", guarantee: "G08",
		file: "lease/applied.go", pkg: "./lease", test: "^TestTranscripts$/^offers$",
		search:  "\t\tb.offer(i)\n",
		replace: "\t\tb.accept(i)\n",
	},
	{
		name: "a new leader takes an offer for one that nobody has accepted", guarantee: "G06",
		file: "lease/book.go", pkg: "./lease", test: "^TestG06_ANewLeaderTakesAnOfferForAHolding$",
		search:  "\t\t\t\tb.accept(i)\n",
		replace: "\t\t\t\tb.offer(i)\n",
	},
	{
		name: "simulated: a new leader takes an offer for one that nobody has accepted", guarantee: "G06",
		file: "lease/book.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\t\t\tb.accept(i)\n",
		replace: "\t\t\t\tb.offer(i)\n",
	},
	{
		name: "simulated: leaving a queue ends what was handed over", guarantee: "G02",
		file: "core/lease/queue.go", pkg: "./sim", test: fewSeeds,
		search:  "\treturn result{Lease: s.leave(l, c.session, c.holder)}\n",
		replace: "\tif l = s.leave(l, c.session, c.holder); l.Offered && l.Session == c.session {\n\t\tl = s.freeLease(l, ending{what: Declined})\n\t}\n\treturn result{Lease: l}\n",
	},
	{
		name: "what was accepted and is revoked ends with its window", guarantee: "G02",
		file: "lease/applied.go", pkg: "./lease", test: "^TestG02_ARevocationOfAnAcceptedOfferWaitsForItsHolder$",
		search:  "(isNew || was&(revoking|offered) == 0):\n",
		replace: "(isNew || was&(revoking|offered) == 0 && l.extends == 0):\n",
	},
	{
		name: "what was accepted is an offer again with the next change", guarantee: "G02",
		file: "lease/applied.go", pkg: "./lease", test: "^TestG13_AnAcceptedOfferIsKeptByItsPin$",
		search:  "\t\tkept |= offered // if",
		replace: "\t\tl.flags |= offered\n\t\tkept |= offered // if",
	},
	{
		name: "leaving a queue ends what was handed over", guarantee: "G02",
		file: "core/lease/queue.go", pkg: "./lease", test: "^TestG02_LeavingAQueueEndsNoHolding$",
		search:  "\treturn result{Lease: s.leave(l, c.session, c.holder)}\n",
		replace: "\tif l = s.leave(l, c.session, c.holder); l.Offered && l.Session == c.session {\n\t\tl = s.freeLease(l, ending{what: Declined})\n\t}\n\treturn result{Lease: l}\n",
	},
	{
		name: "a pin keeps no offer", guarantee: "G13",
		file: "core/lease/pin.go", pkg: "./core/lease", test: "^TestTranscripts$/^pin$",
		search:  "!l.Free() && !l.Revoking\n",
		replace: "!l.Free() && !l.Revoking && !l.Offered\n",
	},
	{
		name: "a pin keeps an offer that nobody has accepted", guarantee: "G13",
		file: "lease/book.go", pkg: "./lease", test: "^TestTranscripts$/^offers$",
		search:  "\treturn l.flags&offered != 0 || ",
		replace: "\treturn l.flags&(used|pinned) == used && l.flags&offered != 0 || ",
	},
	{
		name: "an offer is accepted in front of its end", guarantee: "G04",
		file: "lease/judge.go", pkg: "./lease", test: "^TestG04_AnOfferThatLapsesIsNotAccepted$",
		search:  "\t\tif l.flags&expiring != 0 || l.touched > 0 {\n",
		replace: "\t\tif l.touched > 0 {\n",
	},
	{
		name: "the log's knowledge of an acceptance prolongs the session", guarantee: "G08",
		file: "lease/applied.go", pkg: "./lease", test: "^TestTranscripts$/^offers$",
		search:  "\t\tif c.Session != nil { // by a claim; else it is the leader that says so\n\t\t\tb.restart(i)\n",
		replace: "\t\tb.restart(i)\n\t\tif c.Session != nil {\n",
	},
	{
		name: "a condition does not hold under the token of what was accepted", guarantee: "G24",
		file: "core/lease/transaction.go", pkg: "./core/kv", test: "^TestG24_TheTokenOfAnOfferIsThatOfAHolding$",
		search:  "token > 0 && l.Token == token",
		replace: "token > 0 && l.Token == token && !l.Offered",
	},
}
