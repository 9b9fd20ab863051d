package mutants

// ofSnapshots are bugs in how a member comes by the state of another one, joins,
// and goes on alone.
var ofSnapshots = []mutant{
	{
		name: "a received snapshot is named before it is synced", guarantee: "G05",
		file: "node/receiver.go", pkg: "./node", test: "^TestPowerFailsWhile(Receiving|Joining)$",
		search:  "\tif err := r.file.Sync(); err != nil {\n\t\treturn err\n\t}\n\tif err := r.files.closed(r.file); err != nil {",
		replace: "\tif err := r.files.closed(r.file); err != nil {",
	},
	{
		name: "a received snapshot whose folder is not synced", guarantee: "G05",
		file: "node/receiver.go", pkg: "./node", test: "^TestPowerFailsWhile(Receiving|Joining)$",
		search:  "\tif err := r.folder.syncDir(); err != nil {\n\t\treturn err\n\t}\n",
		replace: "",
	},
	{
		name: "the sum of a received snapshot is not compared", guarantee: "G30",
		file: "node/receiver.go", pkg: "./node", test: "^TestUnfitSnapshots$",
		search:  "if [sha256.Size]byte(r.sum.Sum(nil)) != r.mark.Checksum {",
		replace: "if false {",
	},
	{
		name: "a beginning that an earlier life received is trusted", guarantee: "G30",
		file: "node/receiver.go", pkg: "./node", test: "^TestPartSurvivesARestart$",
		search: "\tn, err := io.Copy(r.sum, io.NewSectionReader(r.file, 0, r.mark.Bytes))\n\tr.offset, r.unsynced = n, n\n\treturn err\n}\n",
		replace: "\tn, err := r.file.Size()\n\tif n > 0 {\n\t\tr.sum = trusting{r.sum, r.mark.Checksum}\n\t}\n" +
			"\tr.offset, r.unsynced = n, n\n\treturn err\n}\n\n" +
			"type trusting struct {\n\thash.Hash\n\tsum [sha256.Size]byte\n}\n\n" +
			"func (t trusting) Sum(b []byte) []byte { return append(b, t.sum[:]...) }\n",
	},
	{
		name: "raft takes a snapshot whose file is not here", guarantee: "G29",
		file: "node/snapreceive.go", pkg: "./node", test: "^TestRaftsOwnSnapshotMessageIsDropped$",
		search:  "\tcase isSnapshot(*m):\n\t\t// Without its file it is of no use.\n",
		replace: "",
	},
	{
		name: "entries leave before the snapshot that covers them is marked", guarantee: "G05",
		file: "node/appender.go", pkg: "./node", test: "^(TestKillDuringSnapshot|TestG26_RestartShowsWhatWasAcknowledged)$",
		search: "\tif err := a.untilSpace(ctx, \"mark snapshot\", func() error { return a.log.markSnapshot(mark) }); err != nil {\n\t\treturn err\n\t}\n" +
			"\treturn a.release(mark.Index)\n",
		replace: "\tif err := a.release(mark.Index); err != nil {\n\t\treturn err\n\t}\n" +
			"\treturn a.untilSpace(ctx, \"mark snapshot\", func() error { return a.log.markSnapshot(mark) })\n",
	},
	{
		name: "changes of members that a snapshot holds are made again", guarantee: "G33",
		file: "node/replica.go", pkg: "./node", test: "^TestMembersOfASnapshotAreTakenOnce$",
		search:  "if c := a.Entries[i].conf; c != nil && a.Entries[i].Index > r.restoring {",
		replace: "if c := a.Entries[i].conf; c != nil {",
	},
	{
		name: "a member that was told to join founds a cluster", guarantee: "G34",
		file: "node/open.go", pkg: "./node", test: "^TestClusterGrowsAndShrinks$",
		search:  "case cfg.Join != nil || rec.hard.GetTerm() >= joiningTerm:",
		replace: "case cfg.Join != nil:",
	},
	{
		name: "a member without its log founds a cluster", guarantee: "G34",
		file: "node/snapfolder.go", pkg: "./node", test: "^TestG34_LostLogBeginsNoNewCluster$",
		search:  "if strings.HasSuffix(name, snapshotSuffix) && name != first {",
		replace: "if strings.HasSuffix(name, snapshotSuffix) && name == first {",
	},
	{
		name: "a member shows more of itself than is durable", guarantee: "G34",
		file: "node/replica.go", pkg: "./node", test: "^TestOnlyWhatIsSyncedIsShown$",
		search:  "\tif a.MustSync && r.written != nil {",
		replace: "\tif r.written != nil {",
	},
	{
		name: "a survivor's log may be taken for one of the others'", guarantee: "G34",
		file: "node/survivor.go", pkg: "./node", test: "^TestRecoverMakesOneOfThreeAClusterOfItsOwn$",
		search:  "Index: out.Durable + 1, Term: max(out.LastTerm, rec.hard.GetTerm()) + 1,",
		replace: "Index: out.Durable, Term: out.LastTerm,",
	},
}
