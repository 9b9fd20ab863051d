package mutants

// ofReplicas are bugs of raft's driver: confirmations, proposals and elections
// among several members.
var ofReplicas = []mutant{
	{
		name: "who waits for what is applied hears of it with the next tick", guarantee: "G22",
		file: "node/inbox.go", pkg: "./node", test: "^TestAReadHearsAtOnceOfWhatIsApplied$",
		search:  "wake := pressing || b.applies || b.closed",
		replace: "wake := pressing || b.closed",
	},
	{
		name: "what was applied before the loop wanted to hear of it waits for the next tick", guarantee: "G22",
		file: "node/inbox.go", pkg: "./node", test: "^TestTheLoopHearsOfWhatWasAppliedMeanwhile$",
		search:  "if b.applies = applies; applies && len(b.in.calls) > 0 {",
		replace: "if b.applies = applies; false {",
	},
	{
		name: "an acknowledgement that was held back is never sent", guarantee: "G35",
		file: "node/replica.go", pkg: "./node", test: "^TestAnAcknowledgementIsRepeatedByTheNextTick$",
		search:  "\tif m := r.repeated; m != nil {\n\t\tr.send(m)\n\t}\n",
		replace: "",
	},
	{
		name: "a snapshot covers more than the log says is committed", guarantee: "G29",
		file: "node/snapshot.go", pkg: "./node", test: "^TestOneMember$",
		search:  "\tn.snap.bound = nil\n\tn.writeCommit()\n",
		replace: "\tn.snap.bound = nil\n",
	},
	{
		name: "how much is committed is forgotten when something else is written", guarantee: "G29",
		file: "node/replica.go", pkg: "./node", test: "^TestACommitIsNotWrittenByItself$",
		search:  "\tif a.HardState == nil {\n\t\ta.HardState = r.lagging\n\t}\n",
		replace: "",
	},
	{
		name: "a change of members is done before anybody else knows", guarantee: "G33",
		file: "node/membership.go", pkg: "./node", test: "^TestG33_WhoIsLeftKnowsOfAChange$",
		search:  "\treturn c.behind > 0 && r.applied >= c.behind\n",
		replace: "\treturn true\n",
	},
	{
		name: "an expiry is forwarded to the leader", guarantee: "G07",
		file: "node/proposals.go", pkg: "./node", test: "^TestReplica$/^three_members$",
		search:  "case p.Term != 0 && (r.role.State != Leader || r.role.Term != p.Term):",
		replace: "case p.Term != 0 && r.role.Term != p.Term:",
	},
	{
		name: "a deposed leader's bound command goes into a later term", guarantee: "G07",
		file: "node/proposals.go", pkg: "./node", test: "^TestABoundCommandEndsWithItsTerm$",
		search:  "case p.Term != 0 && (r.role.State != Leader || r.role.Term != p.Term):",
		replace: "case p.Term != 0 && r.role.State != Leader:",
	},
	{
		name: "reads rely on the leader's clock", guarantee: "G22",
		file: "node/replica.go", pkg: "./node", test: "^TestReplica$/^three_members$",
		search:  "raft.ReadOnlySafe,",
		replace: "raft.ReadOnlyLeaseBased,",
	},
	{
		name: "a read joins the round under way", guarantee: "G22",
		file: "node/reads.go", pkg: "./node", test: "^TestG22_LateComerWaitsForTheNextRound$",
		search: "\tr.reads.waiting = append(r.reads.waiting, waitingRead{",
		replace: "\tif r.reads.round.active {\n\t\tr.reads.round.asked.add(&confirmation{ahead: ahead, done: done})\n\t\treturn\n\t}\n" +
			"\tr.reads.waiting = append(r.reads.waiting, waitingRead{",
	},
	{
		name: "a follower reads at its own commit index", guarantee: "G22",
		file: "node/reads.go", pkg: "./node", test: "^TestG22_AFollowerReadsWhatTheLeaderCommitted$",
		search:  "r.confirmed(rs.Index, ",
		replace: "r.confirmed(min(rs.Index, r.commit), ",
	},
	{
		name: "a leader confirms before it committed in its term", guarantee: "G22",
		file: "node/reads.go", pkg: "./node", test: "^TestReplica$/^restart$",
		search:  "if r.role.State == Leader && (r.leadIndex == 0 || r.commit < r.leadIndex) {\n\t\treturn\n\t}\n\trd.round =",
		replace: "rd.round =",
	},
	{
		name: "a leader confirms for others before it committed in its term", guarantee: "G22",
		file: "node/elect.go", pkg: "./node", test: "^TestG22_SoleVoterConfirmsForNobodyTooEarly$",
		search:  "return r.role.State != Leader || stateOf(r.raw.BasicStatus().RaftState) != Leader || r.leadIndex == 0 || r.commit < r.leadIndex",
		replace: "return r.role.State != Leader",
	},
	{
		name: "the only voter leads at once although it has learners", guarantee: "G34",
		file: "node/replica.go", pkg: "./node", test: "^TestG34_WhoHasLearnersAsksBeforeItLeadsAlone$",
		search:  "r.soleVoter() && len(r.conf.GetLearners()) == 0 && st.RaftState",
		replace: "r.soleVoter() && st.RaftState",
	},
	{
		name: "unconfirmed reads vanish with the leader", guarantee: "G22",
		file: "node/replica.go", pkg: "./node", test: "^TestReplica$/^three_members$",
		search:  "\tr.failRound()\n",
		replace: "",
	},
	{
		name: "a leader begins before it applied its predecessors' entries", guarantee: "G06",
		file: "node/replica.go", pkg: "./node", test: "^TestReplica$/^restart$",
		search:  "if r.role.State == Leader && c.Index == r.leadIndex {",
		replace: "if r.role.State == Leader && c.Index <= r.leadIndex {",
	},
	{
		name: "doors open before a confirmation begun after the start", guarantee: "G26",
		file: "node/loop.go", pkg: "./node", test: "^TestG26_NotReadyBeforeAConfirmation$",
		search:  "\tn.replica.Confirm(n.confirmedStart)\n\tn.turn(false)\n",
		replace: "\tn.confirmedStart(0, nil)\n\tn.turn(false)\n",
	},
	{
		name: "a forwarded entry is appended in another term", guarantee: "G25",
		file: "node/forward.go", pkg: "./node", test: "^TestForwardedFrameNamesItsTerm$",
		search:  "if f.Term != r.forwards.term {",
		replace: "if f.Term < r.forwards.term {",
	},
	{
		name: "a forwarded entry that comes twice is appended twice", guarantee: "G25",
		file: "node/forward.go", pkg: "./node", test: "^TestForwardedFramesKeepTheirOrder$",
		search:  "case f.First <= book.appended: // it came before",
		replace: "case f.First < book.appended: // it came before",
	},
	{
		name: "a forwarded entry is appended after it was refused", guarantee: "G25",
		file: "node/forward.go", pkg: "./node", test: "^TestForwardedFramesKeepTheirOrder$",
		search:  "\t\tbook.refused = f.First\n",
		replace: "",
	},
	{
		name: "a forwarded entry overtakes a lost one", guarantee: "G25",
		file: "node/forward.go", pkg: "./node", test: "^TestForwardedFramesKeepTheirOrder$",
		search:  "case f.After != 0 && f.After != book.appended: // one before it is missing; both come again",
		replace: "case false:",
	},
	{
		name: "a refused entry goes again behind what followed it", guarantee: "G25",
		file: "node/forward.go", pkg: "./node", test: "^TestRefusalTakesTheTailWithIt$",
		search:  "if p.first >= b.first && p.term == b.term {",
		replace: "if p.first == b.first && p.term == b.term {",
	},
	{
		name: "an unknown outcome is answered as unavailable", guarantee: "G25",
		file: "node/pending.go", pkg: "./node", test: "^TestForwardsGoOnAfterAnUnknown$",
		search:  "incumbent.Errorf(incumbent.Unknown, \"%s\", why)",
		replace: "incumbent.Errorf(incumbent.Unavailable, \"%s\", why)",
	},
	{
		name: "what may be appended goes again with the next leader", guarantee: "G25",
		file: "node/replica.go", pkg: "./node", test: "^TestReplica$/^three_members$",
		search:  "\tr.settleTransfer()\n\tif role.State == Leader {",
		replace: "\tr.settleTransfer()\n\tr.requeueAll(r.pendingInOrder())\n\tif role.State == Leader {",
	},
	{
		name: "what a received snapshot may hold goes again", guarantee: "G25",
		file: "node/pending.go", pkg: "./node", test: "^TestPendingAtAReceivedSnapshot$",
		search:  "\t\tr.giveUp(b, \"the state was replaced by the leader's before the command was seen applied\")\n",
		replace: "\t\tr.requeueAll([]*batch{b})\n",
	},
	{
		name: "commands are refused while leadership is handed over", guarantee: "G25",
		file: "node/proposals.go", pkg: "./node", test: "^TestReplica$/^transfer$",
		search:  "\t\treturn !r.handingOver()\n",
		replace: "\t\tif r.handingOver() {\n\t\t\tr.refuseWaiting()\n\t\t}\n\t\treturn true\n",
	},
	{
		name: "a member whose disk hangs campaigns and votes for itself", guarantee: "G32",
		file: "node/transfer.go", pkg: "./node", test: "^TestReplica$/^hung_disk$",
		search:  "func (r *Replica) passive() bool { return ",
		replace: "func (r *Replica) passive() bool { return false && ",
	},
	{
		name: "a leader whose disk hangs goes on to speak", guarantee: "G32",
		file: "node/transfer.go", pkg: "./node", test: "^TestReplica$/^hung_disk$",
		search:  "\t\tr.mute(true)\n",
		replace: "",
	},
	{
		name: "a lost leader is not forgotten before the campaign", guarantee: "G32",
		file: "node/elect.go", pkg: "./node", test: "^TestG32_LostLeaderIsFollowedAtOnce$",
		search:  "if err := r.raw.ForgetLeader(); err != nil || !r.isVoter() {",
		replace: "if !r.isVoter() {",
	},
	{
		name: "what a lost leader had sent comes after its loss", guarantee: "G32",
		file: "node/loop.go", pkg: "./node", test: "^TestALostMembersMessagesComeFirst$",
		search:  "\tfor i := range b.messages {\n\t\tn.step(&b.messages[i])\n\t}\n\tfor _, f := range b.after {\n\t\tf()\n\t}\n",
		replace: "\tfor _, f := range b.after {\n\t\tf()\n\t}\n\tfor i := range b.messages {\n\t\tn.step(&b.messages[i])\n\t}\n",
	},
	{
		name: "an entry of an earlier life answers a request of this one", guarantee: "G25",
		file: "node/pending.go", pkg: "./node", test: "^TestReplica$/^restart$",
		search:  "if err != nil || h.Member != r.cfg.ID || h.Incarnation != r.cfg.Incarnation {",
		replace: "if err != nil || h.Member != r.cfg.ID {",
	},
	{
		name: "a confirmation of an earlier life answers a read of this one", guarantee: "G22",
		file: "node/reads.go", pkg: "./node", test: "^TestG22_AnAnswerOfAnEarlierLifeConfirmsNothing$",
		search:  "binary.LittleEndian.Uint64(rs.RequestCtx) != r.cfg.Incarnation {",
		replace: "false {",
	},
}
