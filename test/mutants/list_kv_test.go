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
		search:  "MaxOriginBytes      = 320 ",
		replace: "MaxOriginBytes      = 256 ",
	},
	{
		name: "the sections of families are left out of the hash", guarantee: "G27",
		file: "core/snapshot.go", pkg: "./core", test: "^TestAFamilyIsOneFolderAndOneLine$",
		search:  "\tfor _, f := range v.families {\n\t\tp.family(f)\n\t}\n",
		replace: "",
	},
	{
		name: "a session is taken behind the families", guarantee: "G29",
		file: "core/restore.go", pkg: "./core", test: "^TestG29_ASectionHasOneForm$",
		search:  "\t\t\tif d.sections > 0 {\n",
		replace: "\t\t\tif false {\n",
	},
}
