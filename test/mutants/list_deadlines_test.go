package mutants

// ofDeadlines are bugs of the deadlines that the leader's clock keeps for families.
var ofDeadlines = []mutant{
	{
		name: "a family's deadline has neither drift nor grace", guarantee: "G07",
		file: "lease/deadline.go", pkg: "./lease", test: "^TestG07_AFamilysDeadlineLastsItsTime$",
		search:  "b.now + b.hold(int64(d.After))",
		replace: "b.now + int64(d.After)",
	},
	{
		name: "a deadline that is over is kept", guarantee: "G07",
		file: "lease/deadline.go", pkg: "./lease", test: "^TestG07_ADeadlineThatBeginsAgainIsAnother$",
		search:  "\tb.dropDeadline(keyOf(d))\n",
		replace: "",
	},
	{
		name: "the end of a deadline is not bound to its leader's term", guarantee: "G07",
		file: "lease/expire.go", pkg: "./lease", test: "^TestG07_ADeposedLeaderEndsNoDeadline$",
		search:  "Command: cmd.Encode(e.own()), Term: e.term, Reserve: true,",
		replace: "Command: cmd.Encode(e.own()), Term: map[bool]uint64{true: e.term}[d.Deadline == nil], Reserve: true,",
	},
	{
		name: "the end of a deadline waits for no confirmation", guarantee: "G07",
		file: "lease/expire.go", pkg: "./lease", test: "^TestG07_ADeposedLeaderEndsNoDeadline$",
		search: "func (e *Engine) findDue() { e.expiry.due = e.book.Due(e.expiry.due) }",
		replace: "func (e *Engine) findDue() {\n\tfor _, d := range e.book.Due(nil) {\n\t\tif d.Deadline != nil {\n" +
			"\t\t\te.expiry.ready = append(e.expiry.ready, d)\n\t\t} else {\n\t\t\te.expiry.due = append(e.expiry.due, d)\n\t\t}\n\t}\n}",
	},
	{
		name: "a new leader ends deadlines at once", guarantee: "G06",
		file: "lease/book.go", pkg: "./engine", test: "^TestG06_ANewLeaderStartsADelayAnew$",
		search:  "\t\ti := b.putDeadline(d)\n",
		replace: "\t\ti := b.putDeadline(d)\n\t\tb.deadlines[i].deadline = b.now\n\t\tb.deadlines[i].bucket = 0\n\t\tb.arm(deadlineRef(i))\n",
	},
	{
		name: "a new leader knows of no deadline", guarantee: "G06",
		file: "core/kv/delay.go", pkg: "./engine", test: "^TestG06_ANewLeaderStartsADelayAnew$",
		search:  "\tv.delays.Scan(func(d *Delay) bool { return fn(d.deadline()) })\n",
		replace: "",
	},
	{
		name: "the leader's clock is not told of a lock's delay", guarantee: "G07",
		file: "core/kv/apply.go", pkg: "./engine", test: "^TestG07_ALockedKeyWaitsForItsDelay$",
		search:  "\t\t\tbegins = d.deadline()\n",
		replace: "",
	},
}
