package mutants

// ofKeys are bugs of families of state, and of that of keys and values.
var ofKeys = []mutant{
	{
		name: "a condition is compared with the index of the creation", guarantee: "G28",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestTranscripts$/^conditions$",
		search:  "o != nil && o.Modified == c.Index\n",
		replace: "o != nil && o.Created == c.Index\n",
	},
	{
		name: "a lock outlives its session", guarantee: "G08",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestTranscripts$/^locks$",
		search:  "n.Session, n.OnEnd, n.Delay, n.Modified = incumbent.SessionID{}, Keep, 0, x.Index()\n",
		replace: "n.Modified = x.Index()\n",
	},
	{
		name: "a lock ends without its delay", guarantee: "G02",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestTranscripts$/^locks$",
		search:  "\t\tif o.Delay > 0 {\n",
		replace: "\t\tif o.Delay > MaxDelay {\n",
	},
	{
		name: "a tombstone goes without raising the floor", guarantee: "G15",
		file: "core/kv/kv.go", pkg: "./core/kv", test: "^TestTranscripts$/^limits$",
		search:  "\t\tt.floor = max(t.floor, oldest.at)\n",
		replace: "",
	},
	{
		name: "a change of a key is told without what was", guarantee: "G15",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestTranscripts$/^conditions$",
		search:  "\t\tc.Before = o\n",
		replace: "",
	},
	{
		name: "a record of a key is taken in another form", guarantee: "G29",
		file: "core/kv/record.go", pkg: "./core/kv", test: "^TestG29_RecordsHaveOneForm$",
		search:  "bytes.Equal(t.again.write(kind, n), b) && ",
		replace: "",
	},
	{
		name: "a command names a schema without its family and is executed", guarantee: "G49",
		file: "core/family.go", pkg: "./core", test: "^TestG49_AFamilyOfALaterSchemaIsRefusedAlike$",
		search:  " && schema >= uint64(f.Schema())",
		replace: "",
	},
	{
		name: "a principal is cut", guarantee: "G12",
		file: "core/limits.go", pkg: "./core", test: "^TestAFamilyKnowsWhoAsked$",
		search:  "MaxOriginBytes     = 320 ",
		replace: "MaxOriginBytes     = 256 ",
	},
	{
		name: "the sections of families are left out of the hash", guarantee: "G27",
		file: "core/snapshot.go", pkg: "./core", test: "^TestAFamilyIsOneFolderAndOneLine$",
		search:  "\tfor i, f := range v.families {\n\t\tp.family(v.kinds[i].Name(), f)\n\t}\n",
		replace: "",
	},
	{
		name: "a session is taken behind the families", guarantee: "G29",
		file: "core/restore.go", pkg: "./core", test: "^TestG29_ASectionHasOneForm$",
		search:  "\tif d.sections > 0 {\n\t\treturn d.corrupt(\"it comes behind the families\")\n\t}\n\tswitch r",
		replace: "\tswitch r",
	},
	{
		name: "a call on a key that may be a repetition is refused without the log", guarantee: "G25",
		file: "door/native/keys.go", pkg: "./door/native", test: "^TestG25_WhatMayHaveBeenSentBeforeIsRefusedByTheLog$",
		search:  "d.writes.Key(familyCall(call, false), c, o.first(), done)\n",
		replace: "d.writes.Key(familyCall(call, false), c, true, done)\n",
	},
	{
		name: "a repeated request over a stream says that it is the first", guarantee: "G25",
		file: "client/session_kv.go", pkg: "./client", test: "^TestG25_OnlyTheFirstAttemptOverAStreamSaysSo$",
		search:  "key.First = attempts == 1\n",
		replace: "key.First = true\n",
	},
	{
		name: "whoever has a stream may change keys", guarantee: "G12",
		file: "door/native/keys.go", pkg: "./door/native", test: "^TestG12_KeysOverAStreamAreForAgentsAndOperators$",
		search:  "\tif err := d.allowChange(who, o.action, c); err != nil {\n\t\trefuse(err)\n\t\treturn\n\t}\n",
		replace: "",
	},
	{
		name: "a repeated call on a key says that it is the first", guarantee: "G25",
		file: "client/members.go", pkg: "./client", test: "^TestG25_OnlyTheFirstAttemptSaysSo$",
		search:  "\t\tout.Header.Del(headerFirst)\n",
		replace: "",
	},
	{
		name: "a quota is not judged by the log", guarantee: "G28",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestTranscripts$/^quota$",
		search:  "grows <= 0 || t.bytes+grows <= most",
		replace: "grows <= most",
	},
	{
		name: "the end of a delay that is not there stops every member", guarantee: "G28",
		file: "core/kv/apply.go", pkg: "./engine", test: "^TestG15_G28_RandomCommandsThroughTheComposition$",
		search:  "\tif d == nil || d.Since != c.Index {\n",
		replace: "\tif d.Since != c.Index {\n",
	},
}

// ofKeysSimulated are bugs about keys that the simulator has to find by itself.
var ofKeysSimulated = []mutant{
	{
		name: "simulated: a condition is compared with the index of the creation", guarantee: "G22",
		file: "core/kv/apply.go", pkg: "./sim", test: fewSeeds,
		search:  "o != nil && o.Modified == c.Index\n",
		replace: "o != nil && o.Created == c.Index\n",
	},
	{
		name: "simulated: a lock outlives its session", guarantee: "G08",
		file: "core/kv/apply.go", pkg: "./sim", test: fewSeeds,
		search:  "n.Session, n.OnEnd, n.Delay, n.Modified = incumbent.SessionID{}, Keep, 0, x.Index()\n",
		replace: "n.Modified = x.Index()\n",
	},
	{
		name: "simulated: a lock is taken from another session", guarantee: "G02",
		file: "core/kv/apply.go", pkg: "./sim", test: fewSeeds,
		search:  "\tcase o != nil && !o.Session.IsZero():\n\t\treturn refused(incumbent.Held",
		replace: "\tcase false:\n\t\treturn refused(incumbent.Held",
	},
	{
		name: "simulated: the lock index does not rise", guarantee: "G03",
		file: "core/kv/apply.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\tn.LockIndex++\n",
		replace: "",
	},
	{
		name: "simulated: a lock ends without its delay", guarantee: "G02",
		file: "core/kv/apply.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\tif o.Delay > 0 {\n",
		replace: "\t\tif o.Delay > MaxDelay {\n",
	},
	{
		name: "simulated: a new leader ends the delays of locks at once", guarantee: "G06",
		file: "lease/book.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\ti := b.putDeadline(d)\n",
		replace: "\t\ti := b.putDeadline(d)\n\t\tb.deadlines[i].deadline = b.now\n\t\tb.deadlines[i].bucket = 0\n\t\tb.arm(deadlineRef(i))\n",
	},
	{
		name: "simulated: a deletion leaves no tombstone", guarantee: "G15",
		file: "core/kv/kv.go", pkg: "./sim", test: fewSeeds,
		search:  "\t\tt.bury(tombstone{k, at})\n",
		replace: "\t\tt.bury(tombstone{k, 1})\n",
	},
	{
		name: "simulated: watchers are not told of deletions", guarantee: "G15",
		file: "engine/events.go", pkg: "./sim", test: fewSeeds,
		search:  "c.Family != nil && c.Family.Told()\n",
		replace: "c.Family != nil && c.Family.After != nil\n",
	},
	{
		name: "simulated: a quota is not judged by the log", guarantee: "G28",
		file: "core/kv/apply.go", pkg: "./sim", test: fewSeeds,
		search:  "grows <= 0 || t.bytes+grows <= most",
		replace: "grows <= most",
	},
	{
		name: "an entry's key aliases the log", guarantee: "G28",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestModel$",
		search:  "n.Key, n.Created = c.Key.clone(), x.Index()",
		replace: "n.Key, n.Created = c.Key, x.Index()",
	},
}
