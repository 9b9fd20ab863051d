package mutants

// ofFloods are bugs in what the load tool holds against servers in a flood.
var ofFloods = []mutant{
	{
		name: "the load tool takes no answer for a refusal", guarantee: "G41",
		file: "bench/flood_open.go", pkg: "./bench", test: "^TestWhoBeginsInAFloodIsAnswered$",
		search:  "\t\t\tcase ctx.Err() == nil && now-began < openPatience:\n",
		replace: "\t\t\tcase now >= began:\n",
	},
	{
		name: "the load tool does not ask who holds what silent holders left", guarantee: "G42",
		file: "bench/silent.go", pkg: "./bench", test: "^TestWhatASilentHolderLeft$",
		search:  "\t\t\tf.check.Violate(\"nobody holds %d of %d leases, for which somebody waits, whose holders fell silent\", left, f.fell)\n",
		replace: "",
	},
	{
		name: "holders that fall silent go on", guarantee: "G42",
		file: "bench/steps.go", pkg: "./bench", test: "^TestWhatASilentHolderLeft$",
		search:  "\tcase p.link != nil && p.link.mute || p.agent != nil && p.agent.link.mute: // nobody is there to do it\n",
		replace: "",
	},
	{
		name: "the load tool takes refused extensions of critical leases", guarantee: "G40",
		file: "bench/beside.go", pkg: "./bench", test: "^TestCriticalLeasesAreJudged$",
		search:  "\t\tif n := f.denied + f.unsure; n > 0 {\n",
		replace: "\t\tif n := f.denied + f.unsure; n > 1<<30 {\n",
	},
	{
		name: "simulated: a lane forgets to shed", guarantee: "G39",
		file: "admit/lane.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\tif !must && beyond {\n",
		replace: "\tif !must && beyond && now < 0 {\n",
	},
	{
		name: "simulated: one lane of them all forgets to shed", guarantee: "G39",
		file: "admit/lane.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\tif !must && beyond {\n",
		replace: "\tif !must && beyond && rank != rankOf[Small] {\n",
	},
	{
		name: "simulated: the limit of a lane does not fall", guarantee: "G39",
		file: "admit/lane.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\t\tl.limit = int64(n + 2*math.Sqrt(n))\n",
		replace: "\t\tl.limit = max(l.limit, int64(n+2*math.Sqrt(n)))\n",
	},
	{
		name: "a flood leaves its limit", guarantee: "G42",
		file: "admit/lane.go", pkg: "./admit", test: "^TestG42_AFloodLeavesNothingOfItsLimit$",
		search:  "\t\tl.limit += max(0, DefaultStart-l.limit) / 16\n",
		replace: "",
	},
	{
		name: "simulated: who was refused a stream never comes back", guarantee: "G43",
		file: "sim/keeper.go", pkg: "./sim", test: "^TestG43_AllComeBackAtOnce$",
		search:  "\t\t\t\t\tk.a.later(d, k.extend)\n",
		replace: "\t\t\t\t\t_ = d\n",
	},
	{
		name: "simulated: the leader's word is not passed on to the lanes", guarantee: "G40",
		file: "admit/admit.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\tif r := min(int(rank), numRanks-2); r > 0 {\n",
		replace: "\tif r := min(int(rank), numRanks-2); r > numRanks {\n",
	},
	{
		name: "simulated: heartbeats wait until a snapshot is written", guarantee: "G44",
		file: "sim/process.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\tp.every(tick, func() { p.node.Turn(true) })\n",
		replace: "\tp.every(tick, func() {\n\t\tif !p.saving {\n\t\t\tp.node.Turn(true)\n\t\t}\n\t})\n",
	},
	{
		name: "simulated: a claim is let in although extensions wait too long", guarantee: "G40",
		file: "admit/admit.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\t\tif c.shut[r].Load() > now {\n\t\t\treturn Order\n",
		replace: "\t\tif false {\n\t\t\treturn Order\n",
	},
	{
		name: "simulated: a refusal does not say when to come back", guarantee: "G41",
		file: "admit/admit.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "RetryAfter: time.Duration(wait * (0.5 + c.jitter())),",
		replace: "RetryAfter: 0 * time.Duration(wait),",
	},
	{
		name: "simulated: refused clients come back together", guarantee: "G41",
		file: "admit/admit.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "time.Duration(wait * (0.5 + c.jitter()))",
		replace: "time.Duration(min(wait, float64(limits.Retry)))",
	},
	{
		name: "simulated: the node does not look at deadlines", guarantee: "G41",
		file: "node/proposals.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\tcase !p.Deadline.IsZero() && !now.Before(p.Deadline):\n",
		replace: "\tcase false:\n",
	},
	{
		name: "simulated: followers do not hear what the leader refuses", guarantee: "G40",
		file: "lease/forward.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\t\te.cfg.Press(f.pressure)\n",
		replace: "",
	},
	{
		name: "simulated: a client that was refused never returns", guarantee: "G42",
		file: "sim/keeper.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\ts.w.after(s.w.upTo(steadyRests), s.next)\n",
		replace: "\tif s.w.now < floodBegins+floodLasts {\n\t\ts.w.after(s.w.upTo(steadyRests), s.next)\n\t}\n",
	},
	{
		name: "simulated: no heartbeat leaves while a snapshot is taken", guarantee: "G44",
		file: "node/manual.go", pkg: "./sim", test: "^TestG39_G40_G41_G42_G44_AFlood$",
		search:  "\tm.turn(ticked)\n",
		replace: "\tm.turn(ticked && !m.onDisk)\n",
	},
	{
		name: "a request in JSON may be as many messages as fit into it", guarantee: "G45",
		file: "door/native/codec.go", pkg: "./door/native", test: "^TestG45_ValuesOfARequestAreBounded$",
		search:  "most := mostValues(message); incumbent.HasMoreValues(b, most)",
		replace: "most := mostValues(message); false && incumbent.HasMoreValues(b, most)",
	},
	{
		name: "a request in protobuf may be as many messages as fit into it", guarantee: "G45",
		file: "door/native/codec.go", pkg: "./door/native", test: "^TestG45_ValuesOfARequestAreBounded$",
		search:  "most := mostValues(message); hasMoreFields(b, most)",
		replace: "most := mostValues(message); false",
	},
	{
		name: "commas in texts are values", guarantee: "G45",
		file: "json.go", pkg: "./door/native", test: "^TestG45_ValuesOfARequestAreBounded$",
		search:  "\t\t\tif c == '\\\\' {\n\t\t\t\ti++\n\t\t\t}\n",
		replace: "",
	},
	{
		name: "the audit log moves the cursor of who reads it", guarantee: "G12",
		file: "audit/audit.go", pkg: "./audit", test: "^TestTextsAreEscapedAndCut$",
		search:  "incumbent.EscapeJSON(text)...",
		replace: "append(incumbent.EscapeJSON(nil), text...)...",
	},
}
