package mutants

// ofPeers are bugs of the connections between members.
var ofPeers = []mutant{
	{
		name: "a member whose disk went back in time is taken", guarantee: "G34",
		file: "node/peers/handshake.go", pkg: "./node/peers", test: "^TestRolledBackMemberIsRefused$",
		search:  "\tcase lower != \"\":\n",
		replace: "\tcase false:\n",
	},
	{
		name: "a member that lost committed entries is taken", guarantee: "G34",
		file: "node/peers/book.go", pkg: "./node/peers", test: "^TestBookJudges$",
		search:  "\tcase s.Durable < r.index:\n",
		replace: "\tcase false:\n",
	},
	{
		name: "two processes of one member are taken", guarantee: "G34",
		file: "node/peers/book.go", pkg: "./node/peers", test: "^TestBookJudges$",
		search:  "\tcase s.Incarnation == r.incarnation:\n",
		replace: "\tcase false:\n",
	},
	{
		name: "a member is taken before the book is synced", guarantee: "G34",
		file: "node/peers/book.go", pkg: "./node/peers", test: "^TestBookOutlivesPowerLoss$",
		search:  "\treturn \"\", b.flush()\n",
		replace: "\treturn \"\", nil\n",
	},
	{
		name: "a member that was removed is taken", guarantee: "G33",
		file: "node/peers/handshake.go", pkg: "./node/peers", test: "^TestRemovedMemberIsTold$",
		search:  "if s.cfg.Membership(h.member) == Gone {",
		replace: "if false {",
	},
	{
		name: "a member speaks for another", guarantee: "G33",
		file: "node/peers/handshake.go", pkg: "./node/peers", test: "^TestCertificateOfAnotherMemberIsRefused$",
		search:  "\t\tif err := s.cfg.Verify(cs, h.member); err != nil {\n",
		replace: "\t\tif err := s.cfg.Verify(cs, h.member); err != nil && false {\n",
	},
	{
		name: "messages of another member are delivered", guarantee: "G33",
		file: "node/peers/conn.go", pkg: "./node/peers", test: "^TestGarbageIsCutOff$",
		search:  "\t\tif err := check(&m, c.peer.id, c.set.cfg.Self); err != nil {\n\t\t\treturn err\n\t\t}\n",
		replace: "",
	},
	{
		name: "an ended connection delivers what it had read", guarantee: "G27",
		file: "node/peers/conn.go", pkg: "./node/peers", test: "^TestFencedConnectionDeliversNothing$",
		search:  "\tif !c.fenced {\n",
		replace: "\tif true {\n",
	},
	{
		name: "one lost connection counts as a lost member", guarantee: "G35",
		file: "node/peers/peer.go", pkg: "./node/peers", test: "^TestOneConnectionLostIsNotAMemberLost$",
		search:  "if p.states[node.Control] == linkClosed && p.states[node.Bulk] == linkClosed {",
		replace: "if p.states[node.Control] == linkClosed || p.states[node.Bulk] == linkClosed {",
	},
	{
		name: "a muted member is connected again", guarantee: "G32",
		file: "node/peers/set.go", pkg: "./node/peers", test: "^TestMuteIsSilenceThatOthersNotice$",
		search:  "\tfor _, p := range *s.peers.Load() {\n\t\tp.closeAll(errMuted)\n\t}\n",
		replace: "",
	},
	{
		name: "the barrier does not ask what has arrived", guarantee: "G07",
		file: "node/peers/socket.go", pkg: "./node/peers", test: "^TestBarrierCoversWhatHasArrived$",
		search:  "waiter{target: s.read + arrived, part: part}",
		replace: "waiter{target: min(s.settled, s.read+arrived), part: part}",
	},
	{
		name: "an entry that may have left is refused in the leader's name", guarantee: "G25",
		file: "node/peers/send.go", pkg: "./node/peers", test: "^TestControlDoesNotWaitForBulk$",
		search:  "\tif err != nil && !again {\n",
		replace: "\tif err != nil {\n",
	},
	{
		name: "a replaced connection loses what was queued", guarantee: "G27",
		file: "node/peers/peer.go", pkg: "./node/peers", test: "^TestRotationLosesNothing$",
		search:  "\t\told.retire() // the other installed the new one before it said ready\n",
		replace: "\t\told.close(errReplaced)\n",
	},
}
