package mutants

// ofBackups are bugs of backups, of new clusters made of them, and of who writes
// them.
var ofBackups = []mutant{
	{
		name: "the hash of a sealed file is not compared", guarantee: "G30",
		file: "vfs/sealed/reader.go", pkg: "./vfs/sealed", test: "^TestTheHashIsCompared$",
		search:  "if !bytes.Equal(b[len(endWord)+8:], want) {",
		replace: "if false && want != nil {",
	},
	{
		name: "bytes behind the end of a sealed file are taken", guarantee: "G30",
		file: "vfs/sealed/reader.go", pkg: "./vfs/sealed", test: "^TestG30_EveryDamagedByteIsFound$",
		search:  "\t\treturn s.Corrupt(\"bytes behind the trailer\")\n",
		replace: "",
	},
	{
		name: "a backup is taken for whole before its end was read", guarantee: "G30",
		file: "backup/backup.go", pkg: "./backup", test: "^TestG30_ABackupThatDiffersIsRefused$",
		search:  "return b.Info, b.Finish()",
		replace: "return b.Info, nil",
	},
	{
		name: "a backup has its name before it is whole", guarantee: "G05",
		file: "backup/folder.go", pkg: "./backup", test: "^TestOnlyWholeFilesHaveAName$",
		search:  "tmp := fmt.Sprintf(\"%s.%s%016x%s\", path, mark, rand.Uint64(), temporary)",
		replace: "_, tmp := rand.Uint64(), path",
	},
	{
		name: "a restored cluster goes on where the backup ends", guarantee: "G03",
		file: "backup/restore.go", pkg: "./cluster", test: "^TestG03_G14_ARestoredClusterGoesOnAboveItsSource$",
		search:  "core.RaiseIndexCommand{To: core.RestoreIndex(newest)}",
		replace: "core.RaiseIndexCommand{To: newest}",
	},
	{
		name: "a restored cluster leaves no room for recoveries of its source", guarantee: "G03",
		file: "backup/restore.go", pkg: "./cluster", test: "^TestG03_G14_ARestoredClusterGoesOnAboveItsSource$",
		search:  "core.RaiseIndexCommand{To: core.RestoreIndex(newest)}",
		replace: "core.EpochCommand{}",
	},
	{
		name: "the members of the source may come back", guarantee: "G34",
		file: "backup/restore.go", pkg: "./cluster", test: "^TestG03_G14_ARestoredClusterGoesOnAboveItsSource$",
		search:  "core.RemoveMemberCommand{ID: m.ID}.Encode(meta)",
		replace: "core.PutMemberCommand{Member: m}.Encode(meta)",
	},
	{
		name: "simulated: a restored cluster goes on where the backup ends", guarantee: "G03",
		file: "backup/restore.go", pkg: "./sim", test: "^TestG03_G14_G34_ALostClusterIsRestored$",
		search:  "core.RaiseIndexCommand{To: core.RestoreIndex(newest)}",
		replace: "core.RaiseIndexCommand{To: newest}",
	},
	{
		name: "simulated: the members of the source may come back", guarantee: "G34",
		file: "backup/restore.go", pkg: "./sim", test: "^TestG03_G14_G34_ALostClusterIsRestored$",
		search:  "core.RemoveMemberCommand{ID: m.ID}.Encode(meta)",
		replace: "core.PutMemberCommand{Member: m}.Encode(meta)",
	},
	{
		name: "a restore that is not finished looks like a member", guarantee: "G05",
		file: "cluster/record.go", pkg: "./cluster", test: "^TestARestoreThatWasCutShort$",
		search:  "case r.Stage == restoring && r.Version <= recordVersion:",
		replace: "case false:",
	},
	{
		name: "a namespace takes the sessions of others along", guarantee: "G12",
		file: "core/namespace.go", pkg: "./cluster", test: "^TestRestoreOfOneNamespace$",
		search:  "\tpart := &View{terms: v.terms, usage: t.usage}\n",
		replace: "\tv.Sessions(incumbent.SessionID{}, func(s *Session) bool { session(s.ID); return true })\n\tpart := &View{terms: v.terms, usage: t.usage}\n",
	},
	{
		name: "what is too old is chosen by no order", guarantee: "G05",
		file: "backup/folder.go", pkg: "./backup", test: "^TestFolder$",
		search:  "range list[:len(list)-keep] {",
		replace: "range list[keep:] {",
	},
	{
		name: "every member writes backups", guarantee: "G01",
		file: "server/schedule.go", pkg: "./server", test: "^TestOneMemberWritesBackups$",
		search:  "\t\tk.until = time.Time{}\n\t}\n\t// Otherwise",
		replace: "\t\tk.until = sent.Add(backupTTL)\n\t}\n\t// Otherwise",
	},
}
