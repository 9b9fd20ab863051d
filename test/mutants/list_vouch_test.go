package mutants

// ofVouching are bugs of confirmations that need no round, because who asks the
// leader vouches for it.
var ofVouching = []mutant{
	{
		name: "a beat waits for company however short its session's ttl", guarantee: "G08",
		file: "lease/forward.go", pkg: "./lease", test: "^TestPatientBatchesShareFrames$",
		search:  "\treturn min(w.batch.Patience, s.TTL/patientPart)\n",
		replace: "\treturn w.batch.Patience\n",
	},
	{
		name: "an extension waits for the company of a patient one", guarantee: "G40",
		file: "lease/forward.go", pkg: "./lease", test: "^TestPatientBatchesShareFrames$",
		search:  "\t\tif len(c.queue) == 0 || by < c.leaveBy {\n",
		replace: "\t\tif len(c.queue) == 0 || by > c.leaveBy {\n",
	},
	{
		name: "what is asked in another term vouches for this one", guarantee: "G22",
		file: "node/vouch.go", pkg: "./node", test: "^TestG22_WhoAsksVouches$",
		search:  "r.role.Term != term || st.HardState.GetTerm() != term {",
		replace: "false {",
	},
	{
		name: "any one member vouches for the leader", guarantee: "G22",
		file: "node/vouch.go", pkg: "./node", test: "^TestG22_WhoDoesNotMakeAQuorumDoesNotVouch$",
		search:  "quorum(r.conf.GetVoters(), with) && quorum(r.conf.GetVotersOutgoing(), with)\n",
		replace: "len(with) > 1\n",
	},
	{
		name: "members vouch for a leader that has committed nothing", guarantee: "G22",
		file: "node/vouch.go", pkg: "./node", test: "^TestG22_NobodyVouchesForALeaderThatHasCommittedNothing$",
		search:  "return index, r.leadIndex != 0 && index >= r.leadIndex &&\n",
		replace: "return index, true &&\n",
	},
	{
		name: "what is vouched for is answered before the state has caught up", guarantee: "G22",
		file: "node/vouch.go", pkg: "./node", test: "^TestG22_WhatIsVouchedForWaitsForTheMachine$",
		search:  "r.confirmed(index, a)",
		replace: "r.confirmed(min(index, r.applied), a)",
	},
	{
		name: "the lease loop vouches by what it has applied", guarantee: "G02",
		file: "lease/vouch.go", pkg: "./lease", test: "^TestG02_OnlyWhoKnowsOfNoNewerTermVouches$",
		search:  "!e.leading && leader != 0 && leader == e.leader && term == e.courier.term",
		replace: "!e.leading && (e.leader != 0 || leader == 0 || term == 0)",
	},
	{
		name: "a frame that is sent again vouches as the first one did", guarantee: "G02",
		file: "lease/engine.go", pkg: "./lease", test: "^TestAFrameSentAgainVouchesAnew$",
		search:  "\te.courier.vouches = false // it holds for what left in this turn\n",
		replace: "",
	},
	{
		name: "a newer term shows after it was spoken of", guarantee: "G02",
		file: "node/loop.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\tif eff.Role != nil {\n\t\t\tn.show() // before anybody can learn of it from a message or an answer\n\t\t}\n",
		replace: "",
	},
	{
		name: "what is vouched for ends no silence", guarantee: "G08",
		file: "lease/vouch.go", pkg: "./lease", test: "^TestG08_WhatIsVouchedForEndsASilence$",
		search:  "\t\te.quorumHeard()\n",
		replace: "",
	},
	{
		name: "a session is said to be held for leases of which nobody is told that they are revoked", guarantee: "G02",
		file: "lease/judge.go", pkg: "./lease", test: "^TestG02_MoreRevocationsThanAreTold$",
		search:  "\t\theld = 0 // whoever",
		replace: "\t\t_ = held // whoever",
	},
	{
		name: "only a beat tells of a revocation", guarantee: "G02",
		file: "door/native/call.go", pkg: "./door/native", test: "^TestG02_ABeatTellsOfARevocation$",
		search:  "range item.RevokingTokens {",
		replace: "range item.RevokingTokens[:0] {",
	},
}
