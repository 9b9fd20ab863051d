package mutants

// ofOVSDB are bugs of what is computed from OVSDB's values, and of databases of them.
var ofOVSDB = []mutant{
	{
		name: "a set may have an element twice", guarantee: "G01",
		file: "core/table/ovs/datum.go", pkg: "./core/table/ovs", test: "^TestOperationsFailAsClientsAreUsedTo$",
		search:  "\t\tif d.Keys[i] != d.Keys[i-1] {",
		replace: "\t\tif d.Keys[i] != d.Keys[i-1] || d.Values == nil {",
	},
	{
		name: "a pair that changed is missing in the difference", guarantee: "G20",
		file: "core/table/ovs/datum.go", pkg: "./core/table/ovs", test: "^TestDifferencesAndForms$",
		search:  "\t\t\tif old.value(i) != new.value(j) {\n\t\t\t\tr.add(new, j)\n\t\t\t}\n",
		replace: "",
	},
	{
		name: "inserting a pair overwrites the value", guarantee: "G01",
		file: "core/table/ovs/datum.go", pkg: "./core/table/ovs", test: "^TestMutations$",
		search:  "\t\tif i == len(d.Keys) || d.Keys[i] != k {\n\t\t\tr.add(o, j)\n\t\t}\n",
		replace: "\t\tr.add(o, j)\n\t\tif i < len(d.Keys) && d.Keys[i] == k {\n\t\t\ti++\n\t\t}\n",
	},
	{
		name: "a number that is not there is less than any", guarantee: "G01",
		file: "core/table/ovs/condition.go", pkg: "./core/table/ovs", test: "^TestConditions$",
		search:  "\tif len(d.Keys) == 0 {\n\t\treturn false\n",
		replace: "\tif len(d.Keys) == 0 {\n\t\treturn c.Function == Less\n",
	},
	{
		name: "sums of 65 bits wrap around", guarantee: "G01",
		file: "core/table/ovs/mutation.go", pkg: "./core/table/ovs", test: "^TestMutations$",
		search:  "return n, (n > a) == (b > 0)",
		replace: "return n, true",
	},
	{
		name: "the first of members of one name counts", guarantee: "G01",
		file: "core/table/ovs/json_parse.go", pkg: "./core/table/ovs", test: "^TestTheLastOfManyMembersWins$",
		search:  "\t\t\t\tmembers[j+1] = members[i+1]\n\t\t\t\tcontinue next\n",
		replace: "\t\t\t\tcontinue next\n",
	},
	{
		name: "a transaction that failed leaves what it did to the rest of its batch", guarantee: "G01",
		file: "core/table/apply.go", pkg: "./core/table", test: "^TestModel$",
		search:  "\tif p.out.Failed {\n\t\tp.undo()\n\t}\n",
		replace: "",
	},
	{
		name: "a batch changes what the view before it shows", guarantee: "G01",
		file: "core/table/database.go", pkg: "./core/table", test: "^TestModel$",
		search:  "\tt.batch = new(batch)\n\treturn &View",
		replace: "\treturn &View",
	},
	{
		name: "everybody may open the control socket", guarantee: "G12",
		file: "door/ovsdb/control/listen.go", pkg: "./door/ovsdb/control", test: "^TestG12_TheSocketIsTheUsers$",
		search:  "\tdefer private()() //",
		replace: "\t//",
	},
	{
		name: "a command that failed ends the server all the same", guarantee: "G48",
		file: "door/ovsdb/control/control.go", pkg: "./door/ovsdb/control", test: "^TestTheAnswerComesBeforeWhatFollowsIt$",
		search:  "return failure{r.ID, err.Error() + \"\\n\"}, nil",
		replace: "return failure{r.ID, err.Error() + \"\\n\"}, after",
	},
	{
		name: "all members have one short id", guarantee: "G29",
		file: "server/ovsdb.go", pkg: "./server", test: "^TestControlKicksAMember$",
		search:  "\t\tid[i] ^= byte(",
		replace: "\t\tid[8+i] ^= byte(",
	},
	{
		name: "monitors of OVSDB's clients do not hear of a change of policies", guarantee: "G12",
		file: "door/ovsdb/rules.go", pkg: "./door/ovsdb", test: "^TestG12_MonitorsFollowThePolicies$",
		search:  "\t\t\tif m.judge() != nil {\n",
		replace: "\t\t\tif false {\n",
	},
	{
		name: "a monitor is judged when it is asked for only", guarantee: "G12",
		file: "door/ovsdb/monitor.go", pkg: "./door/ovsdb", test: "^TestG12_MonitorsAreJudgedWhenTheyBegin$",
		search:  "\tif err := m.judge(); err != nil { // policies",
		replace: "\tif err := error(nil); err != nil { // policies",
	},
	{
		name: "a change of a monitor's conditions is not judged", guarantee: "G12",
		file: "door/ovsdb/monitor.go", pkg: "./door/ovsdb", test: "^TestG12_ChangesOfConditionsAreJudged$",
		search:  "\tif err := m.judge(); err != nil {\n\t\treturn faultOf(err)\n\t}\n",
		replace: "",
	},
	{
		name: "what a client looks at is judged before it is confirmed only", guarantee: "G12",
		file: "door/ovsdb/transact.go", pkg: "./door/ovsdb", test: "^TestG12_LooksFollowThePolicies$",
		search:  "\tif t.rules != rulesIn(v) {\n",
		replace: "\tif false {\n",
	},
	{
		name: "transactions that wait do not hear of a change of policies", guarantee: "G12",
		file: "door/ovsdb/rules.go", pkg: "./door/ovsdb", test: "^TestG12_LooksFollowThePolicies$",
		search:  "\tf.retryAll()\n",
		replace: "",
	},
	{
		name: "a lock does not say by which policies it was allowed", guarantee: "G12",
		file: "door/ovsdb/lock.go", pkg: "./door/ovsdb", test: "^TestG12_LocksUnderWayAreBoundByANewPolicy$",
		search:  "Claim(lease.Call{Origin: c.who.origin(), Judged: judged}, cmd",
		replace: "Claim(lease.Call{Origin: c.who.origin(), Judged: judged &^ judged}, cmd",
	},
	{
		name: "locks outlive the right to them", guarantee: "G12",
		file: "door/ovsdb/rules.go", pkg: "./door/ovsdb", test: "^TestG12_LocksFollowThePolicies$",
		search:  "\t\tc.do(c.rejudgeLocks)\n",
		replace: "\t\t_ = c\n",
	},
	{
		name: "who may end what others hold may hold it", guarantee: "G12",
		file: "door/ovsdb/lock.go", pkg: "./door/ovsdb", test: "^TestG12_EveryRowIsPlayedWithAndWithoutItsRight$",
		search:  "\tif err == nil && l.stealer {\n",
		replace: "\tif l.stealer {\n",
	},
	{
		name: "a conversion names later policies than it was judged by", guarantee: "G12",
		file: "door/ovsdb/define.go", pkg: "./door/ovsdb", test: "^TestG12_AConversionIsBoundByThePoliciesItWasJudgedBy$",
		search:  "\td := c.door\n\tcmd := &table.Convert",
		replace: "\t_, r.judged = c.who.rights()\n\td := c.door\n\tcmd := &table.Convert",
	},
	{
		name: "who is revoked on the way in stays", guarantee: "G12",
		file: "door/ovsdb/accept.go", pkg: "./door/ovsdb", test: "^TestG12_WhoIsRevokedOnTheWayInIsSentAway$",
		search:  " || !d.known(who, d.cfg.Guard.Knows())",
		replace: "",
	},
	{
		name: "nobody is let in", guarantee: "G12",
		file: "door/ovsdb/accept.go", pkg: "./door/ovsdb", test: "^TestG12_NobodyIsNotLetIn$",
		search:  "\t\t\terr = errNobody\n",
		replace: "",
	},
	{
		name: "waits of OVSDB's clients are not told of a lost history of policies", guarantee: "G12",
		file: "engine/policies.go", pkg: "./engine", test: "^TestPoliciesAreFollowedAcrossARestore$",
		search:  "\t\tchanged() // what changed before was not heard of\n",
		replace: "",
	},
}
