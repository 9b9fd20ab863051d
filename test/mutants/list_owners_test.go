package mutants

// ofOwners are bugs of whose sessions are, of fair queues, and of saying who was
// denied what.
var ofOwners = []mutant{
	{
		name: "a session's id is a right", guarantee: "G12",
		file: "core/owner.go", pkg: "./core/lease", test: "^TestG12_ASessionsIDIsNoRight$",
		search:  "\treturn Privileged(c.principal) || string(c.principal) == o.Owner()\n",
		replace: "\treturn c != nil && o != nil\n",
	},
	{
		name: "another's session is kept alive by opening it", guarantee: "G08",
		file: "core/session.go", pkg: "./core/lease", test: "^TestG12_ASessionsIDIsNoRight$",
		search:  "\t\tif !c.mayUse(o) {\n\t\t\treturn Result{Err: notOwner()}\n\t\t}\n\t\tif o.TTL == ttl {",
		replace: "\t\tif o.TTL == ttl {",
	},
	{
		name: "a lease is given into any session", guarantee: "G12",
		file: "core/lease/free.go", pkg: "./core/lease", test: "^TestG12_ALeaseIsTransferredToWhoWaits$",
		search:  "\tif c.wait || s.x.CheckOwner(to.Session) != nil {\n",
		replace: "\tif c.wait {\n",
	},
	{
		name: "a lease is given to a holder whom its giver may not speak for", guarantee: "G12",
		file: "core/lease/free.go", pkg: "./core/lease", test: "^TestG12_ALeaseIsTransferredToWhoWaits$",
		search:  "\tif c.wait || s.x.CheckOwner(to.Session) != nil {\n",
		replace: "\tif s.x.CheckOwner(to.Session) != nil {\n",
	},
	{
		name: "who has many places is granted before who has one", guarantee: "G12",
		file: "core/lease/queue.go", pkg: "./core/lease", test: "^TestG12_QueuesTakeTurns$",
		search:  "Turn: s.turnOf(e, owner), ",
		replace: "Turn: uint64(s.first) - 1, ",
	},
	{
		name: "one principal takes all places of a queue", guarantee: "G12",
		file: "core/lease/queue.go", pkg: "./core/lease", test: "^TestG12_SharesOfAQueue$",
		search:  "\tcase s.shares.now[share{e.row, owner}] >= s.limits.ofPrincipal:\n",
		replace: "\tcase s.shares.now[share{e.row, owner}] > s.limits.ofPrincipal:\n",
	},
	{
		name: "each place of a dead session costs its queue an offer", guarantee: "G08",
		file: "core/lease/free.go", pkg: "./core/lease", test: "^TestG08_AQueueWaitsOnceForADeadSession$",
		search:  "\t\tl = s.leave(l, l.Session, nil)\n",
		replace: "",
	},
	{
		name: "ids of others' sessions are shown", guarantee: "G12",
		file: "door/native/sight.go", pkg: "./door/native", test: "^TestG12_ListingsShowWhatMayBeSeen$",
		search:  "return s.all || o != nil && s.of.SeesOf(o.Owner()) }",
		replace: "return s.all || o != nil }",
	},
	{
		name: "nobody is told that records were lost", guarantee: "G39",
		file: "linequeue/queue.go", pkg: "./audit", test: "^TestWhatIsLostIsSaid$",
		search:  "\tif got.lost > 0 {\n",
		replace: "\tif got.lost > 0 && len(got.lines) == 0 {\n",
	},
	{
		name: "what is denied pushes out all other events", guarantee: "G39",
		file: "server/trail.go", pkg: "./server", test: "^TestDenialsLeaveRoomForOtherEvents$",
		search:  "\tif d.room == 0 {\n",
		replace: "\tif d.room == -1 {\n",
	},
}
