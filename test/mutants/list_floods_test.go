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
}
