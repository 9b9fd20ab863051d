package mutants

// ofUnknowns are bugs of what is on its way through the log while its outcome is
// not known, or while the role changes.
var ofUnknowns = []mutant{
	{
		name: "a command whose outcome is unknown is forgotten", guarantee: "G02",
		file: "lease/submit.go", pkg: "./lease", test: "^TestG02_NothingIsToldBehindAnUnknownEnd$",
		search:  "\tif incumbent.KindOf(err) == incumbent.Unknown {\n\t\te.undecide(c, err)\n\t\treturn\n\t}\n",
		replace: "",
	},
	{
		name: "an expiry whose outcome is unknown counts as refused", guarantee: "G02",
		file: "lease/expire.go", pkg: "./lease", test: "^TestG02_AnUnknownExpiryStaysMarked$",
		search:  "\tif incumbent.KindOf(err) == incumbent.Unknown {\n\t\treturn // with the term",
		replace: "\tif false {\n\t\treturn // with the term",
	},
	{
		name: "a release does not hold up extensions of what its claim begins", guarantee: "G02",
		file: "lease/engine.go", pkg: "./lease", test: "^TestG02_AReleaseBehindItsClaimIsMarked$",
		search:  "\t\te.remark(l.Name)\n",
		replace: "",
	},
	{
		name: "a release does not hold up extensions of what a snapshot brings", guarantee: "G02",
		file: "lease/engine.go", pkg: "./lease", test: "^TestG02_AReleaseOfWhatASnapshotBrings$",
		search:  "\tws := e.takeHeld()\n\te.retouch()\n",
		replace: "\tws := e.takeHeld()\n",
	},
	{
		name: "a new leader forgets which of its commands may end a lease", guarantee: "G02",
		file: "lease/role.go", pkg: "./lease", test: "^TestG02_AnUnknownReleaseOutlivesARole$",
		search:  "\te.endedUnseen()\n\te.retouch()\n",
		replace: "\te.endedUnseen()\n",
	},
	{
		name: "a deposed leader forgets which of its commands may end a lease", guarantee: "G02",
		file: "lease/role.go", pkg: "./lease", test: "^TestG02_AReleaseOfADeposedLeaderIsMarked$",
		search:  "e.courier.notBefore = term, 0\n\te.retouch()\n",
		replace: "e.courier.notBefore = term, 0\n",
	},
	{
		name: "what is asked of a member that is about to lead is turned away", guarantee: "G04",
		file: "lease/serve.go", pkg: "./lease", test: "^TestAFrameInFrontOfTheTermWaits$",
		search:  "(term > known || term == known && e.leader == 0)",
		replace: "term > known",
	},
	{
		name: "what was asked in a term that is over waits for it", guarantee: "G04",
		file: "lease/serve.go", pkg: "./lease", test: "^TestAFrameInFrontOfTheTermWaits$",
		search:  "return term > e.term && (",
		replace: "return (",
	},
}
