package mutants

// ofRules are bugs against safety rules of leases: what is stored when, how long
// it holds, what a revocation and a pin do.
var ofRules = []mutant{
	{
		name: "an extension is stored only when it is judged", guarantee: "G07",
		file: "lease/judge.go", pkg: "./lease", test: "^TestG07_AnExtensionCountsBeforeItIsConfirmed$",
		search:  "\t\tif it := &b.Items[i]; it.valid() {\n\t\t\te.store(it)\n\t\t}\n",
		replace: "\t\tb.Items[i].valid()\n",
	},
	{
		name: "a shorter claim of the holder lowers the logged ttl", guarantee: "G04",
		file: "core/lease/claim.go", pkg: "./core/lease", test: "^TestTranscripts$/^claim$",
		search:  "n.TTL = max(l.TTL, ttl)",
		replace: "n.TTL = ttl",
	},
	{
		name: "the time for which the quorum was silent counts", guarantee: "G07",
		file: "lease/engine.go", pkg: "./lease", test: "^TestG07_ADeposedLeaderExpiresNothing$",
		search:  "e.stalled(e.book.Stall(time.Duration(e.now-e.silentSince) - already))",
		replace: "_ = already",
	},
	{
		name: "an extension moves a deadline closer", guarantee: "G04",
		file: "lease/book.go", pkg: "./lease", test: "^TestG04_AShorterExtensionShortensNothing$",
		search:  "\tl.deadline = max(l.deadline, b.now+b.hold(d))\n",
		replace: "\tl.deadline = b.now + b.hold(d)\n",
	},
	{
		name: "an extension of a session moves its deadline closer", guarantee: "G04",
		file: "lease/book.go", pkg: "./lease", test: "^TestG04_AShorterExtensionShortensNothing$",
		search:  "\ts.deadline = max(s.deadline, b.now+b.hold(d))\n",
		replace: "\ts.deadline = b.now + b.hold(d)\n",
	},
	{
		name: "what is being revoked is extended", guarantee: "G08",
		file: "lease/judge.go", pkg: "./lease", test: "^TestTranscripts$/^expiry$",
		search:  "\tcase l.flags&revoking != 0:\n\t\te.answer(b, i, incumbent.NotHolder, 0)\n",
		replace: "",
	},
	{
		name: "a ttl that is raised behind a revocation extends the lease", guarantee: "G04",
		file: "lease/judge.go", pkg: "./lease", test: "^TestG04_ARaiseBehindARevocationExtendsNoLease$",
		search:  "\tcase e.overtaken(it):\n",
		replace: "\tcase false && e.overtaken(it):\n",
	},
	{
		name: "a revocation at the deadline ends at once", guarantee: "G02",
		file: "core/lease/free.go", pkg: "./core/lease", test: "^TestTranscripts$/^revoke$",
		search:  "\tcase !c.atEnd:\n",
		replace: "\tcase true:\n",
	},
	{
		name: "a revocation does not make void what was proposed before", guarantee: "G07",
		file: "core/lease/free.go", pkg: "./core/lease", test: "^TestTranscripts$/^revoke$",
		search:  "\tn.Revoking = true\n\tn.Renewal++\n",
		replace: "\tn.Revoking = true\n",
	},
	{
		name: "unpinning does not restart the clock", guarantee: "G13",
		file: "lease/applied.go", pkg: "./lease", test: "^TestG13_PinnedDoesNotExpire$",
		search:  "\t\tif len(c.Lease.Pins) == 0 && !c.Lease.Revoking && b.leases[i].flags&offered == 0 {\n\t\t\tb.restart(i)\n\t\t}\n",
		replace: "",
	},
	{
		name: "unpinning prolongs what is being revoked", guarantee: "G08",
		file: "lease/applied.go", pkg: "./lease", test: "^TestG08_ARevocationIsNotProlonged$",
		search:  "\t\tif len(c.Lease.Pins) == 0 && !c.Lease.Revoking && b.leases[i].flags&offered == 0 {\n",
		replace: "\t\tif len(c.Lease.Pins) == 0 && b.leases[i].flags&offered == 0 {\n",
	},
	{
		name: "a pin keeps what is being revoked", guarantee: "G08",
		file: "core/lease/pin.go", pkg: "./lease", test: "^TestG08_ARevocationIsNotProlonged$",
		search:  "!l.Free() && !l.Revoking\n",
		replace: "!l.Free()\n",
	},
	{
		name: "what is refused is looked at before", guarantee: "G40",
		file: "door/native/requests.go", pkg: "./door/native", test: "^TestG40_WhatIsRefusedIsNotLookedAt$",
		search:  "\tplace, err := s.door.lanes.Enter(s.who.work(groupOfOperation(in))",
		replace: "\tif o, err := operationOf(s.who.principal, in); err == nil {\n\t\t_ = s.door.allow(s.who, o)\n\t}\n\tplace, err := s.door.lanes.Enter(s.who.work(groupOfOperation(in))",
	},
	{
		name: "who has waited for a change looks again whatever is refused", guarantee: "G40",
		file: "door/ovsdb/transact.go", pkg: "./door/ovsdb", test: "^TestG40_WaitsAreOfTheLaneOfWatches$",
		search:  "if err != nil && t.began.Before(t.until) {",
		replace: "if err != nil && t.began.After(t.until) {",
	},
	{
		name: "all who are woken go before what others ask for", guarantee: "G40",
		file: "door/ovsdb/wait.go", pkg: "./door/ovsdb", test: "^TestG40_WakesDoNotGoBeforeOtherWork$",
		search:  "f.door.woken.Put(t)",
		replace: "t.conn.do(t.look)",
	},
	{
		name: "the rest of a body that was refused unread is the next request", guarantee: "G47",
		file: "door/consul/parse.go", pkg: "./door/consul", test: "^TestG41_WhatIsRefusedIsNotWaitedFor$",
		search:  "\t\tif in.unread {\n\t\t\tin.left -= int64(n)\n",
		replace: "\t\tif in.unread {\n\t\t\tin.left, n = 0, 0\n",
	},
	{
		name: "a call is read before its lane refuses it", guarantee: "G41",
		file: "door/native/guard.go", pkg: "./door/native", test: "^TestG41_ARefusedCallIsNotRead$",
		search:  "if err = d.refuses(ctx, who, c); err != nil {",
		replace: "if false {",
	},
	{
		name: "a transaction is refused though it may only let go", guarantee: "G40",
		file: "calls/table.go", pkg: "./door/native", test: "^TestG41_WhatOneLaneLetsInIsRead$",
		search:  "Lane: admit.Transactions, Or: []admit.Lane{admit.Claims, admit.Releases}",
		replace: "Lane: admit.Transactions, Or: []admit.Lane{admit.Claims}",
	},
	{
		name: "the rest of a body that was not read is the next request", guarantee: "G47",
		file: "door/native/http.go", pkg: "./door/native", test: "^TestG41_ARefusalKeepsTheConnection$",
		search:  "\t\tr = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))",
		replace: "\t\t*r = *r.WithContext(context.WithValue(r.Context(), callerKey{}, who))",
	},
	{
		name: "a shut lane does not count what it refuses", guarantee: "G41",
		file: "admit/admit.go", pkg: "./admit", test: "^TestG41_AShutLaneSaysWhenToComeBack$",
		search:  "\t\t\tc.lanes[l].turnedAway(cost, now, limits, rank, false)\n",
		replace: "",
	},
	{
		name: "a session that is refused leaves its stream", guarantee: "G42",
		file: "client/connect.go", pkg: "./client", test: "^TestG42_ARefusedSessionBeginsOverTheSameStream$",
		search:  "kind != incumbent.Overloaded || s.clock() > until:",
		replace: "kind != incumbent.Overloaded || s.clock() > until-busyStay-1:",
	},
	{
		name: "what a session follows is forgotten if it is refused before the session has begun", guarantee: "G42",
		file: "client/follow.go", pkg: "./client", test: "^TestG42_ARefusedSessionBeginsOverTheSameStream$",
		search:  "case l.over():",
		replace: "case s.current() != l:",
	},
	{
		name: "a request is refused early where one of its lanes is shut", guarantee: "G41",
		file: "admit/admit.go", pkg: "./admit", test: "^TestG41_WhatIsRefusedEarlyWouldBeRefused$",
		search:  "\t\tif why == NumReasons {\n\t\t\treturn nil\n\t\t}\n",
		replace: "\t\tif why == NumReasons && i == len(lanes)-1 {\n\t\t\treturn nil\n\t\t}\n",
	},
	{
		name: "what is refused early is not counted as come", guarantee: "G41",
		file: "admit/admit.go", pkg: "./admit", test: "^TestG41_ARequestIsJudgedOnce$",
		search:  "c.lanes[l].turnedAway(1, now, limits, rankOf[l], first == Delay || above.any())",
		replace: "_ = limits",
	},
	{
		name: "a lane that refuses shuts those before it too shortly", guarantee: "G40",
		file: "admit/admit.go", pkg: "./admit", test: "^TestG40_TheRecordShowsTheOrder$",
		search:  "until := now + int64(limits.Interval)\n",
		replace: "until := now + int64(limits.Interval)/4\n",
	},
	{
		name: "what is let in out of order is not counted", guarantee: "G40",
		file: "admit/order.go", pkg: "./admit", test: "^TestG40_DisorderIsCounted$",
		search:  "\t\t\to.broken.Add(1)\n",
		replace: "",
	},
	{
		name: "after a recovery watches resume from what was lost", guarantee: "G16",
		file: "engine/engine.go", pkg: "./door/native", test: "^TestG16_WhatWasLostIsNotTakenForUnchanged$",
		search:  "if !core.SameHistory(a.Before, a.View.Index()) {",
		replace: "if false {",
	},
	{
		name: "who catches up after a recovery is told that nothing has changed", guarantee: "G16",
		file: "door/native/watch.go", pkg: "./door/native", test: "^TestG16_WhatWasLostIsNotTakenForUnchanged$",
		search:  "if after > v.Index() || !core.SameHistory(after, v.Index()) {",
		replace: "if after > v.Index() {",
	},
	{
		name: "an instance comes without its node", guarantee: "G15",
		file: "core/catalog/change.go", pkg: "./door/native", test: "^TestG15_AServiceIsWatched$",
		search:  "\t\tc.With = with\n",
		replace: "",
	},
	{
		name: "refusals by a request's head are not looked at for the order", guarantee: "G40",
		file: "admit/admit.go", pkg: "./admit", test: "^TestG40_DisorderIsCounted$",
		search:  "c.order.refused(rankOf[l], now, limits)",
		replace: "_ = limits",
	},
	{
		name: "a lane that goes on to refuse hides what it refused before", guarantee: "G40",
		file: "admit/order.go", pkg: "./admit", test: "^TestG40_DisorderIsCounted$",
		search:  "at := &o.quarters[rank][q%4]; at.Load() != q",
		replace: "at := &o.quarters[rank][0]; at.Load() != q",
	},
	{
		name: "each refused attempt to begin goes on to say who is present", guarantee: "G42",
		file: "client/follow.go", pkg: "./client", test: "^TestG42_PresenceIsSaidByTheNewestAttempt$",
		search:  "case s.announcing.Load() != f || l.over():",
		replace: "case l.over():",
	},
	{
		name: "the leader's pressure is not asked for where nobody extends", guarantee: "G40",
		file: "lease/forward.go", pkg: "./lease", test: "^TestG40_TheLeadersPressureIsHeardWithoutExtensions$",
		search:  "return c.worked || len(c.flights) > 0 ||",
		replace: "return len(c.flights) > 0 ||",
	},
	{
		name: "the leader is asked for its pressure where nothing happens", guarantee: "G40",
		file: "lease/forward.go", pkg: "./lease", test: "^TestG40_TheLeadersPressureIsHeardWithoutExtensions$",
		search:  "return c.worked || len(c.flights) > 0 ||",
		replace: "return true ||",
	},
	{
		name: "what waited is appended though its deadline has passed", guarantee: "G41",
		file: "node/proposals.go", pkg: "./node", test: "^TestReplica$/^deadlines$",
		search:  "\tcase !p.Deadline.IsZero() && !now.Before(p.Deadline):\n",
		replace: "\tcase false:\n",
	},
	{
		name: "a pin does not make void what was proposed before", guarantee: "G13",
		file: "core/lease/pin.go", pkg: "./core/lease", test: "^TestTranscripts$/^pin$",
		search:  "\t\tn.Renewal++\n",
		replace: "",
	},
	{
		name: "an offer is held for a ttl before it is accepted", guarantee: "G08",
		file: "lease/applied.go", pkg: "./lease", test: "^TestTranscripts$/^offers$",
		search:  "l.deadline = b.now + b.offerWindow\n",
		replace: "l.deadline = b.now + b.hold(int64(time.Minute))\n",
	},
	{
		name: "the leases of a session are not bounded", guarantee: "G08",
		file: "core/lease/claim.go", pkg: "./core/lease", test: "^TestTranscripts$/^limits$",
		search:  "if c := s.has(id); c.leases+c.waits >= s.limits.perSession {",
		replace: "if c := s.has(id); false && c.leases+c.waits >= s.limits.perSession {",
	},
	{
		name: "a claim of a batch overtakes the release of another holder before it", guarantee: "G25",
		file: "lease/guard.go", pkg: "./door/native", test: "^TestTranscripts$",
		search:  "return o.client.sameAs(c) || sequence != nil && o.Sequence == sequence",
		replace: "return o.client.sameAs(c)",
	},
	{
		name: "a wait looks past the end of a holding", guarantee: "G10",
		file: "engine/release/release.go", pkg: "./engine/release", test: "^TestG10_EndsWithTheHolding$",
		search:  "\tcase w.token != l.Token:\n\t\tw.end(nil)\n\t\treturn\n",
		replace: "",
	},
	{
		name: "claims find room after extensions have none", guarantee: "G40",
		file: "lease/inbox.go", pkg: "./lease", test: "^TestG40_ClaimsAreRefusedBeforeReleasesBeforeExtensions$",
		search:  "\tlimit := MaxQueuedCalls\n",
		replace: "\tlimit := MaxQueuedBatches + MaxQueuedReleases\n",
	},
	{
		name: "what the lease loop has taken does not count", guarantee: "G39",
		file: "lease/inbox.go", pkg: "./lease", test: "^TestG39_WhatWaitsForAnAnswerIsBounded$",
		search:  "\trefused = b.refused\n",
		replace: "\trefused, b.load = b.refused, load{}\n",
	},
	{
		name: "what is in frames of other members is not bounded", guarantee: "G39",
		file: "lease/inbox.go", pkg: "./lease", test: "^TestG39_FramesThatWaitForAnAnswerAreBounded$",
		search:  " && (l.extensions == 0 || !b.load.full())",
		replace: "",
	},
	{
		name: "a frame that nobody waits for counts for ever", guarantee: "G39",
		file: "lease/serve.go", pkg: "./lease", test: "^TestG39_FramesThatWaitForAnAnswerAreBounded$",
		search:  "\tif s.over {\n\t\tif s.batch.left == 0 {\n\t\t\te.unserve(s)\n\t\t}\n\t\treturn\n",
		replace: "\tif s.over {\n\t\treturn\n",
	},
	{
		name: "who is next is looked for in all of a queue", guarantee: "G40",
		file: "lease/next.go", pkg: "./lease", test: "^TestG40_WhoIsNextIsLookedForInBounds$",
		search:  "if places++; places > core.MaxAbsent {",
		replace: "if places++; places > leases.MaxQueue {",
	},
	{
		name: "a lane at its limit does not shut those before it", guarantee: "G40",
		file: "admit/admit.go", pkg: "./admit", test: "^TestG40_LanesAreRefusedInOrder$",
		search:  "\t\traise(&c.shut[rank], until)\n",
		replace: "",
	},
	{
		name: "who has more than their share shuts all out", guarantee: "G41",
		file: "admit/admit.go", pkg: "./admit", test: "^TestG41_WhoHasMuchKeepsNobodyOut$",
		search:  "case full || above.any() && rank == rankOf[Extensions]:",
		replace: "case full || above.any():",
	},
	{
		name: "who has more than their share is refused nothing before it", guarantee: "G40",
		file: "admit/admit.go", pkg: "./admit", test: "^TestG41_WhoHasMuchKeepsNobodyOut$",
		search:  "\t\tc.shares.shut(rank, w, above, until)\n",
		replace: "",
	},
	{
		name: "a lane of few extensions refuses what a stall has gathered", guarantee: "G40",
		file: "admit/lane.go", pkg: "./admit", test: "^TestG40_FewWhoExtendAreNotRefused$",
		search:  "if rank == rankOf[Extensions] && now-l.calm < patience {",
		replace: "if rank == rankOf[Extensions] && now-l.calm < 0 {",
	},
	{
		name: "an outcome counts for another definition of its check", guarantee: "G24",
		file: "health/catalog.go", pkg: "./health", test: "^TestOutcomesOfAnotherDefinition$",
		search:  "if o.of == nil {",
		replace: "if o.of != nil {",
	},
	{
		name: "locks of Open vSwitch's clients are never refused", guarantee: "G40",
		file: "door/ovsdb/lock.go", pkg: "./door/ovsdb", test: "^TestG40_LocksWaitForAPlace$",
		search:  "laneOfLocks = calls.OvsdbLock.Lane()",
		replace: "laneOfLocks = admit.Critical",
	},
	{
		name: "a lane is not shared fairly", guarantee: "G41",
		file: "admit/fair.go", pkg: "./admit", test: "^TestG41_WhoSendsLittleIsServed$",
		search:  "k != 0 && has > 0 && has+cost > shareOfFree*max(free, 0)",
		replace: "k != 0 && has > 0 && has+cost < 0",
	},
	{
		name: "a follower does not pass the leader's pressure on", guarantee: "G40",
		file: "lease/serve.go", pkg: "./lease", test: "^TestG40_TheLeadersPressureComesWithItsAnswers$",
		search:  "return min(e.cfg.Pressure(), maxPressure)",
		replace: "return 0",
	},
	{
		name: "monitors of OVSDB's clients pass no lane", guarantee: "G40",
		file: "calls/table.go", pkg: "./door/ovsdb", test: "^TestG40_MonitorsAreRefusedBeforeTransactions$",
		search:  "OvsdbMonitor:  {Action: auth.TableWatch, Judged: Named, Lane: admit.Watches",
		replace: "OvsdbMonitor:  {Action: auth.TableWatch, Judged: Named, Lane: NoLane",
	},
}

// ofClients are bugs of a holder: how it counts what it was told.
var ofClients = []mutant{
	{
		name: "a late extension revives what has passed", guarantee: "G38",
		file: "client/lease.go", pkg: "./client", test: "^TestLateExtensionRevivesNothing$",
		search:  "if l.ended || l.revoked || now >= l.deadline {",
		replace: "if l.ended || l.revoked {",
	},
	{
		name: "what is being revoked is over at once", guarantee: "G02",
		file: "client/beat.go", pkg: "./client", test: "^TestARevokedLeaseHasItsTimeLeft$",
		search:  "\t\t\tl.revoke()\n",
		replace: "\t\t\tl.end(incumbent.Errorf(incumbent.NotHolder, \"%s is being revoked\", l.name.Lease))\n",
	},
	{
		name: "what is being revoked is given back", guarantee: "G02",
		file: "client/claim.go", pkg: "./client", test: "^TestARevokedLeaseHasItsTimeLeft$",
		search:  "\t\tif l.beingRevoked() {\n\t\t\treturn nil",
		replace: "\t\tif false {\n\t\t\treturn nil",
	},
	{
		name: "only a timer says that a lease has passed", guarantee: "G38",
		file: "client/lease.go", pkg: "./client", test: "^TestG38_HeldIsFalseAfterAPause$",
		search:  "lapsed := !l.ended && l.session.clock() >= l.deadline",
		replace: "lapsed := false",
	},
}

// ofDisks are bugs of the log, of disks that are damaged or full, and of what
// becomes of a damaged snapshot.
var ofDisks = []mutant{
	{
		name: "a full disk takes what makes the state grow", guarantee: "G31",
		file: "node/disk.go", pkg: "./node", test: "^TestG31_LowDiskRefusesGrowth$",
		search:  "refuse := full || free >= 0 && reserve > 0 && free < limit",
		replace: "refuse := full",
	},
	{
		name: "the leader grows although a quorum has no space", guarantee: "G31",
		file: "node/disk.go", pkg: "./node", test: "^TestRefuseGrowth$",
		search:  "return !n.refuse.Load() && n.barred.Load() == nil",
		replace: "return !n.refuse.Load()",
	},
	{
		name: "a leader whose disk is full stays although others have space", guarantee: "G31",
		file: "node/loop.go", pkg: "./node", test: "^TestG31_FullLeaderHandsOverOnce$",
		search:  "\tn.replica.DiskFull(n.appender.waits())\n",
		replace: "",
	},
	{
		name: "a leader does not look at its own snapshot that a peer refuses", guarantee: "G30",
		file: "node/snapsend.go", pkg: "./node", test: "^TestDamagedSnapshotOfTheLeader$",
		search:  "\t\tn.verifyOwn(t.mark)\n",
		replace: "",
	},
	{
		name: "a leader in whose log nothing happens keeps its damaged snapshot", guarantee: "G30",
		file: "node/snapshot.go", pkg: "./node", test: "^TestDamagedSnapshotOfTheLeader$",
		search:  "\t\tn.replica.ProposeNothing()\n",
		replace: "",
	},
	{
		name: "a damaged snapshot is not replaced", guarantee: "G30",
		file: "node/snapshot.go", pkg: "./node", test: "^TestDamagedSnapshotOfTheLeader$",
		search:  "st.SnapshotWanted || n.snap.wanted && st.Applied > st.Snapshot",
		replace: "st.SnapshotWanted",
	},
}
