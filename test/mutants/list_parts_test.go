package mutants

// Rules of commands in parts.
var ofParts = []mutant{
	{
		name: "a part is taken behind another beginning", guarantee: "G25",
		file: "core/parts/apply.go", pkg: "./core/parts", test: "^TestAPartWaitsOnlyBehindItsPredecessors$",
		search:  "o.Began != p.began || ",
		replace: "",
	},
	{
		name: "a part is taken twice", guarantee: "G25",
		file: "core/parts/apply.go", pkg: "./core/parts", test: "^TestAPartWaitsOnlyBehindItsPredecessors$",
		search:  " || o.Bytes() != p.offset",
		replace: "",
	},
	{
		name: "a command is executed before its last part", guarantee: "G25",
		file: "core/parts/apply.go", pkg: "./core/parts", test: "^TestACommandInPartsIsAppliedAsOne$",
		search:  "\tif p.last() {\n",
		replace: "\tif p.offset+2*len(p.data) >= p.total {\n",
	},
	{
		name: "what has gone on is discarded", guarantee: "G25",
		file: "core/parts/apply.go", pkg: "./core/parts", test: "^TestWhatDoesNotGoOnIsDiscarded$",
		search:  " || o.Newest != p.newest",
		replace: "",
	},
	{
		name: "room is found for the part, not for the whole", guarantee: "G39",
		file: "core/parts/apply.go", pkg: "./core/parts", test: "^TestWhatWaitsIsBounded$",
		search:  "t.total+p.total > t.limits.waiting",
		replace: "t.total+len(p.data) > t.limits.waiting",
	},
	{
		name: "a part aliases the log", guarantee: "G25",
		file: "core/parts/apply.go", pkg: "./core/parts", test: "^TestPartsAreCopied$",
		search:  "bytes.Clone(p.data)",
		replace: "p.data",
	},
	{
		name: "parts that wait have no deadline", guarantee: "G25",
		file: "core/parts/apply.go", pkg: "./engine", test: "^TestG25_ALargeCommandIsNeverHalfApplied$",
		search:  "\tx.Tell(Family{}, core.FamilyChange{Deadline: n.deadline()})\n",
		replace: "",
	},
	{
		name: "a new leader does not know the parts that wait", guarantee: "G25",
		file: "core/parts/parts.go", pkg: "./engine", test: "^TestG25_PartsOfAnEarlierLifeAreDiscarded$",
		search:  "\t\tif !fn(w.deadline()) {\n",
		replace: "\t\tif w.deadline() != nil {\n",
	},
	{
		name: "a part with a key executes its whole", guarantee: "G25",
		file: "core/family.go", pkg: "./core/parts", test: "^TestWhatTravelsInPartsIsACommand$",
		search:  "\tif s.cmd.keyID != nil {\n\t\treturn Result{Err: fail(incumbent.Invalid, \"the key",
		replace: "\tif false {\n\t\treturn Result{Err: fail(incumbent.Invalid, \"the key",
	},
	{
		name: "a part carries what needs a later schema", guarantee: "G49",
		file: "core/family.go", pkg: "./core/parts", test: "^TestWhatTravelsInPartsIsACommand$",
		search:  "s.cmd.schema > schema || ",
		replace: "s.cmd.schema > schema+9 || ",
	},
	{
		name: "a large command whose last part was not seen is refused as not applied", guarantee: "G25",
		file: "engine/large.go", pkg: "./engine", test: "^TestG25_ALargeCommandIsNeverHalfApplied$",
		search:  "\tcase last:\n",
		replace: "\tcase last && r.Err == nil:\n",
	},
	{
		name: "large commands wait without bound", guarantee: "G39",
		file: "engine/large.go", pkg: "./engine", test: "^TestG39_LargeCommandsThatWaitAreBounded$",
		search:  "l.room.Take(p.who, int64(n), maxLargeBytes)",
		replace: "l.room.Take(p.who, int64(n), 1<<40)",
	},
	{
		name: "one client's large commands leave no room for others'", guarantee: "G39",
		file: "engine/large.go", pkg: "./engine", test: "^TestG39_LargeCommandsOfOneLeaveRoomForOthers$",
		search:  "l.room.Take(p.who, int64(n), maxLargeBytes)",
		replace: "l.room.Take(admit.Who{}, int64(n), maxLargeBytes)",
	},
	{
		name: "a log of another format is read", guarantee: "G30",
		file: "wal/recover.go", pkg: "./wal", test: "^TestALogOfAnotherFormatIsRefused$",
		search:  "\t\tsc.other = max(m.Format, 1)\n",
		replace: "",
	},
}
