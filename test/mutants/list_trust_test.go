package mutants

// ofTrust are bugs of joining, and of what members know each other by.
var ofTrust = []mutant{
	{
		name: "a used token is taken from another, or for another key", guarantee: "G33",
		file: "core/trust/apply.go", pkg: "./core/trust", test: "^TestATokenIsSpentOnce$",
		search:  "case k.Spender != 0 && (k.Spender != by.Spender || k.Key != by.Key || !t.waiting(k)):",
		replace: "case false:",
	},
	{
		name: "a used token is taken again from a member that has come up", guarantee: "G33",
		file: "core/trust/apply.go", pkg: "./core/trust", test: "^TestATokenIsSpentOnce$",
		search:  " || k.Key != by.Key || !t.waiting(k)):",
		replace: " || k.Key != by.Key):",
	},
	{
		name: "a token is good for any name", guarantee: "G33",
		file: "core/trust/apply.go", pkg: "./core/trust", test: "^TestATokenIsSpentOnce$",
		search:  "case k.Name != by.Name:",
		replace: "case false:",
	},
	{
		name: "a restored cluster trusts what its source did", guarantee: "G33",
		file: "core/trust/apply.go", pkg: "./core/trust", test: "^TestAnotherClusterBeginsAnew$",
		search:  "	if t.Cluster == c.Cluster {\n",
		replace: "	if t.Cluster != ([16]byte{}) {\n",
	},
	{
		name: "the id of a member that lives is given to who joins", guarantee: "G33",
		file: "core/trust/apply.go", pkg: "./core/trust", test: "^TestATokenIsSpentOnce$",
		search:  "case t.member(c.Token.Spender) != nil:",
		replace: "case false:",
	},
	{
		name: "a forged hello is taken", guarantee: "G33",
		file: "node/peers/proof.go", pkg: "./node/peers", test: "^TestForgedHellos$",
		search:  "if !hmac.Equal(p.code(p.self.other(), f.kind, says), f.payload[n:]) {",
		replace: "if false {",
	},
	{
		name: "who joins may speak for another", guarantee: "G33",
		file: "node/peers/handshake.go", pkg: "./node/peers", test: "^TestKeyOfOneMember$",
		search:  "if err == nil && !proven.key.good(h.member, h.to) {",
		replace: "if false {",
	},
	{
		name: "strangers of one address take all places", guarantee: "G35",
		file: "node/peers/strangers.go", pkg: "./node/peers", test: "^TestStrangersAreBounded$",
		search:  "if l.of(host) <= maxStrangersHost {",
		replace: "if true {",
	},
	{
		name: "who comes next to a crowd is the one that goes", guarantee: "G35",
		file: "node/peers/strangers.go", pkg: "./node/peers", test: "^TestWhichStrangerGoes$",
		search:  "case s.host != host || s == newest:",
		replace: "case s.host != host:",
	},
	{
		name: "who is silent keeps its place as long as who speaks", guarantee: "G35",
		file: "node/peers/socket.go", pkg: "./node/peers", test: "^TestSilenceEndsEarly$",
		search:  "	return s.SetDeadline(first)\n",
		replace: "	return s.SetDeadline(then)\n",
	},
	{
		name: "a member votes that only its sponsor knows", guarantee: "G35",
		file: "cluster/steward.go", pkg: "./cluster", test: "^TestStewardDecides$",
		search:  " && !c.secretless[m.ID]",
		replace: "",
	},
}
