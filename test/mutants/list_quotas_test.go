package mutants

// ofQuotas are bugs in settings of the cluster, and in what is counted for quotas.
var ofQuotas = []mutant{
	{
		name: "a session that has ended still counts", guarantee: "G39",
		file: "core/session.go", pkg: "./core/lease", test: "^TestG39_AQuotaRefusesOnlyWhatMakesMore$",
		search:  "\ts.open[o.ID].owner.Add(Sessions, -1)\n",
		replace: "",
	},
	{
		name: "a lease that is freed still counts for who claimed it", guarantee: "G39",
		file: "core/lease/tables.go", pkg: "./core/lease", test: "^TestG39_CountsFollowFromRecords$",
		search:  "\tt.chargeClaimer(o, -1)\n",
		replace: "",
	},
	{
		name: "a place that is given up still counts in its namespace", guarantee: "G39",
		file: "core/lease/places.go", pkg: "./core/lease", test: "^TestG39_CountsFollowFromRecords$",
		search:  "\tt.chargeSpace(e, core.Places, by)\n",
		replace: "\tt.chargeSpace(e, core.Places, max(by, 0))\n",
	},
	{
		name: "a transaction that is taken back leaves keys counted", guarantee: "G45",
		file: "core/kv/transaction.go", pkg: "./core/kv", test: "^TestG45_CountsGoBackWithTheTransaction$",
		search:  "\t\tt.add(charge{c.entry, -c.keys, -c.bytes})\n",
		replace: "\t\t_ = c\n",
	},
	{
		name: "quotas hold before all members know them", guarantee: "G28",
		file: "core/terms.go", pkg: "./core", test: "^TestG28_QuotasWaitForTheLastMember$",
		search:  "\tif terms == nil || t.activeSchema() < quotaSchema {\n",
		replace: "\tif terms == nil {\n",
	},
	{
		name: "a quota stops operators", guarantee: "G39",
		file: "core/quota.go", pkg: "./core/lease", test: "^TestG39_AQuotaRefusesOnlyWhatMakesMore$",
		search:  "principal == operators || strings.HasPrefix(principal, operators+\":\")",
		replace: "principal == operators || strings.HasPrefix(principal, operators+\"::\")",
	},
	{
		name: "what observes refuses", guarantee: "G39",
		file: "core/quota.go", pkg: "./core", test: "^TestObservingCounts$",
		search:  "\tif t.Quotas == Observe {\n\t\treturn nil\n\t}\n",
		replace: "",
	},
	{
		name: "an unlock takes a key over", guarantee: "G39",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestG39_AnUnlockIsNeverStopped$",
		search:  "\tif c.Verb == Release && o != nil && c.Growth(o) <= 0 {\n",
		replace: "\tif false {\n",
	},
	{
		name: "apply takes a setting out of its bounds", guarantee: "G28",
		file: "core/settings/command.go", pkg: "./core/settings", test: "^TestApplyRefusesWhatCannotBe$",
		search:  "\t\treturn d.checkValue(c.Value)\n",
		replace: "\t\treturn nil\n",
	},
	{
		name: "a setting is changed whatever it was", guarantee: "G22",
		file: "core/settings/apply.go", pkg: "./core/settings", test: "^TestApplyRefusesWhatCannotBe$",
		search:  "\tcase c.IfIndex != nil && *c.IfIndex != modified:\n",
		replace: "\tcase false:\n",
	},
	{
		name: "a state from a snapshot has the settings of none", guarantee: "G29",
		file: "core/restore.go", pkg: "./core/settings", test: "^TestG29_SettingsComeBackFromASnapshot$",
		search:  "\ts.govern()\n",
		replace: "",
	},
	{
		name: "the last of a quota's places of what is open is given twice", guarantee: "G39",
		file: "tally/tally.go", pkg: "./tally", test: "^TestEachHasWhatTheSettingsSay$",
		search:  "has >= most && mode != core.Off",
		replace: "has > most && mode != core.Off",
	},
	{
		name: "a wait that is cancelled keeps its place", guarantee: "G39",
		file: "door/native/wait.go", pkg: "./door/native", test: "^TestQuotasStopWatchesAtTheDoor$",
		search:  "\tw.open.Give()\n",
		replace: "",
	},
	{
		name: "a connection of Juju's that ends keeps its place", guarantee: "G39",
		file: "door/juju/conn.go", pkg: "./door/juju", test: "^TestQuotasOfConnections$",
		search:  "\tc.who.giveBack()\n",
		replace: "",
	},
	{
		name: "the delay of a lock counts for nobody", guarantee: "G39",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestG39_DelaysCountAsKeys$",
		search:  "\tt.delays.Set(d)\n\tt.charge(nil, d.counted())\n",
		replace: "\tt.delays.Set(d)\n",
	},
	{
		name: "the delay of a lock counts for ever", guarantee: "G39",
		file: "core/kv/apply.go", pkg: "./core/kv", test: "^TestG39_DelaysCountAsKeys$",
		search:  "\tt.charge(d.counted(), nil)\n",
		replace: "",
	},
	{
		name: "a record of the catalog counts as one however large", guarantee: "G39",
		file: "core/catalog/usage.go", pkg: "./core/catalog", test: "^TestG39_LargeRecordsCountAsMore$",
		search:  "return int64(1 + bytes/registrationBytes)",
		replace: "return int64(1 + bytes/(1<<30))",
	},
	{
		name: "a connection to Open vSwitch's door that ends keeps its place", guarantee: "G39",
		file: "door/ovsdb/conn.go", pkg: "./door/ovsdb", test: "^TestG39_QuotasStopConnections$",
		search:  "\tc.who.counted.Give()\n",
		replace: "",
	},
	{
		name: "a transaction that waits takes no place of a watch", guarantee: "G39",
		file: "door/ovsdb/wait.go", pkg: "./door/ovsdb", test: "^TestG39_QuotasStopWaits$",
		search:  "\t\t\tt.fail(failed, faultOf(err))\n\t\t\treturn true\n\t\t}\n\t\tt.counted = open\n",
		replace: "\t\t}\n\t\tt.counted = open\n",
	},
	{
		name: "a connection holds two places of its principal", guarantee: "G39",
		file: "tally/tally.go", pkg: "./tally", test: "^TestAConnectionIsCountedOnce$",
		search:  "\tif !c.Hold(func() { place.Give() }) {\n\t\tplace.Give() // another",
		replace: "\tif !c.Hold(func() { place.Give() }) {\n\t\t_ = place // another",
	},
	{
		name: "answers that nobody reads are kept without end", guarantee: "G39",
		file: "door/native/unsent.go", pkg: "./door/native", test: "^TestG39_AnswersThatAreNotReadAreCounted$",
		search:  "\tif refusable && (has > 0",
		replace: "\tif false && (has > 0",
	},
	{
		name: "what all do not read has no bound", guarantee: "G39",
		file: "door/native/unsent.go", pkg: "./door/native", test: "^TestG39_AnswersThatAreNotReadAreCounted$",
		search:  " || n > smallAnswer && u.all+n > MaxUnsentBytes)",
		replace: ")",
	},
	{
		name: "a change is begun for who reads nothing", guarantee: "G39",
		file: "door/native/unsent.go", pkg: "./door/native", test: "^TestG39_AnswersThatAreNotReadAreCounted$",
		search:  "\tif u.by[principal] < most(principal) {\n",
		replace: "\tif true {\n",
	},
}
