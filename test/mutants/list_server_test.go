package mutants

// ofServers are bugs of a whole member: who belongs to the cluster, and what its
// parts do together.
var ofServers = []mutant{
	{
		name: "the barrier ignores the sockets of other members", guarantee: "G07",
		file: "server/barrier.go", pkg: "./server", test: "^TestG07_TheBarrierAsksClientsAndMembers$",
		search:  "{s.park.Barrier, s.arrivals.Barrier, s.transport.Barrier}",
		replace: "{s.park.Barrier, s.arrivals.Barrier}",
	},
	{
		name: "the barrier ignores calls", guarantee: "G07",
		file: "server/barrier.go", pkg: "./server", test: "^TestG07_TheBarrierOfAMemberAsksForCalls$",
		search:  "{s.park.Barrier, s.arrivals.Barrier, s.transport.Barrier}",
		replace: "{s.park.Barrier, s.transport.Barrier}",
	},
	{
		name: "the barrier does not ask what calls wait in their sockets", guarantee: "G07",
		file: "server/arrivals.go", pkg: "./server", test: "^TestG07_TheBarrierHearsCalls$",
		search:  "\t\to.target += a.kernel.arrived()\n",
		replace: "",
	},
	{
		name: "a call is heard before it has handed on what it extends", guarantee: "G07",
		file: "server/arrivals.go", pkg: "./server", test: "^TestG07_TheBarrierHearsCallsOfEveryProtocol$",
		search:  "\t\ta.unheard++\n",
		replace: "",
	},
	{
		name: "a fault is told of only when no flush is out", guarantee: "G31",
		file: "node/node.go", pkg: "./server", test: "^TestG31_AFaultIsToldWhileAFlushHangs$",
		search:  "\t\tn.cfg.Events.Failed(err)\n",
		replace: "",
	},
	{
		name: "who comes again and again has the place of whoever takes long to show who it is", guarantee: "G47",
		file: "gate/gate.go", pkg: "./gate", test: "^TestG47_ACrowdDoesNotTakeTheNewcomersPlace$",
		search:  "c != nil && (c.source == own || c.source.all.n > has)",
		replace: "c != nil",
	},
	{
		name: "an address takes places of those that have no more", guarantee: "G47",
		file: "gate/gate.go", pkg: "./gate", test: "^TestEqualAddressesKeepTheirPlaces$",
		search:  "n > has; n--",
		replace: "n > 0; n--",
	},
	{
		name: "the log that waits to be written has no bound", guarantee: "G31",
		file: "linequeue/queue.go", pkg: "./server", test: "^TestALogThatCannotBeWrittenHoldsNobodyUp$",
		search:  "q.closed || q.size+size > q.cfg.Max",
		replace: "q.closed || q.size > 1<<40",
	},
	{
		name: "a connection counts as a member that is there", guarantee: "G35",
		file: "cluster/hearing.go", pkg: "./cluster", test: "^TestHearing$",
		search:  "return ok && l.Connected && l.Silence <= HeardWithin",
		replace: "return ok && l.Connected",
	},
	{
		name: "recovery does not begin a new epoch", guarantee: "G03",
		file: "cluster/recover.go", pkg: "./server", test: "^TestRecover$",
		search:  "cmds := [][]byte{core.EpochCommand{}.Encode(meta)}",
		replace: "var cmds [][]byte",
	},
	{
		name: "a learner is promoted before it has caught up", guarantee: "G33",
		file: "cluster/steward.go", pkg: "./cluster", test: "^TestStewardWaitsForWhoIsBehind$",
		search:  "if p.Active && !p.Snapshot && p.Match+caughtUpWithin >= c.commit && !c.secretless[m.ID] {",
		replace: "if p.Active && !p.Snapshot && !c.secretless[m.ID] {",
	},
	{
		name: "a member that wants no vote is given one", guarantee: "G33",
		file: "cluster/steward.go", pkg: "./cluster", test: "^TestStewardDecides$",
		search:  "if m.Learner || !slices.Contains(c.learners, m.ID) {",
		replace: "if !slices.Contains(c.learners, m.ID) {",
	},
	{
		name: "a state that differs from the majority's is not noticed", guarantee: "G27",
		file: "cluster/consistency.go", pkg: "./cluster", test: "^TestG27_Compare$",
		search:  "if own, ok := reports[self]; ok && own != right {",
		replace: "if own, ok := reports[self]; !ok && own != right {",
	},
	{
		name: "the leader is right by default", guarantee: "G27",
		file: "cluster/consistency.go", pkg: "./cluster", test: "^TestG27_Compare$",
		search:  "\t\tif len(voters) > 0 && most+missing < quorum {\n\t\t\treturn split, stateHash{}, 0\n\t\t}\n",
		replace: "",
	},
	{
		name: "a report of a learner decides", guarantee: "G27",
		file: "cluster/consistency.go", pkg: "./cluster", test: "^TestG27_Compare$",
		search:  "for _, v := range voters {",
		replace: "for v := range reports {",
	},
	{
		name: "a live member is replaced by one of its name", guarantee: "G33",
		file: "cluster/admission.go", pkg: "./server", test: "^TestJoinRefuses$",
		search:  "if other.ID == st.Member || c.Connected(other.ID) {",
		replace: "if other.ID == st.Member {",
	},
	{
		name: "a majority may be removed", guarantee: "G33",
		file: "cluster/membership.go", pkg: "./server", test: "^TestMembersAreRemovedPromotedAndLead$",
		search:  "\tcase live <= rest/2 && !force:\n",
		replace: "\tcase false && live <= rest/2 && !force:\n",
	},
	{
		name: "a learner counts for a majority", guarantee: "G33",
		file: "server/verdict.go", pkg: "./server", test: "^TestVerdict$",
		search:  "votes := m.Role != cluster.RoleLearner && m.Role != cluster.RoleJoining",
		replace: "votes := m.Role != cluster.RoleJoining",
	},
	{
		name: "a member where nothing moves calls itself overloaded", guarantee: "G35",
		file: "door/native/standstill.go", pkg: "./door/native", test: "^TestAFullLaneWhereNothingMovesSendsClientsAway$",
		search:  "if refusal.Kind != incumbent.Overloaded || !s.lasts(now) {",
		replace: "if true {",
	},
	{
		name: "a member that judges extensions sends clients away", guarantee: "G35",
		file: "door/native/standstill.go", pkg: "./door/native", test: "^TestStandstill$",
		search:  "	if judged {\n\t\ts.since.Store(now)\n\t}\n",
		replace: "",
	},
	{
		name: "a refused beat comes again sooner than the member asked for", guarantee: "G42",
		file: "client/beat.go", pkg: "./client", test: "^TestRefusedPause$",
		search:  "return max(above(time.Duration(e.GetRetryAfterMs())*time.Millisecond), minPause+rand.N(minPause))",
		replace: "return minPause + rand.N(minPause)",
	},
	{
		name: "a client repeats whatever is refused", guarantee: "G42",
		file: "client/budget.go", pkg: "./client", test: "^TestG42_ATenthIsRepeated$",
		search:  "if b.spent+1 > repeatReserve {",
		replace: "if false {",
	},
	{
		name: "a client repeats a claim that was refused", guarantee: "G42",
		file: "client/claim.go", pkg: "./client", test: "^TestG42_ARefusedClaimIsNotRepeated$",
		search:  "(unsure || incumbent.KindOf(err) != incumbent.Overloaded) && s.again(err, unsure)",
		replace: "s.again(err, unsure)",
	},
	{
		name: "a claim that may have been granted is reported as refused", guarantee: "G25",
		file: "client/claim.go", pkg: "./client", test: "^TestG25_AClaimRefusedAfterOneWithoutAnswerIsUndone$",
		search:  "if err != nil && unsure && retryable(err) && ctx.Err() == nil {",
		replace: "if false && unsure {",
	},
	{
		name: "all who were given the same time come back at once", guarantee: "G41",
		file: "client/budget.go", pkg: "./client", test: "^TestG41_WhoWasRefusedTogetherComesBackSpread$",
		search:  "return d + rand.N(d/2+1)",
		replace: "return d + 0*rand.N(d/2+1)",
	},
}
