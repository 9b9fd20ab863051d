package mutants

// ofChecks are bugs of the checks of services, and of DNS.
var ofChecks = []mutant{
	{
		name: "a check connects to the address of metadata", guarantee: "G12",
		file: "health/address.go", pkg: "./health", test: "^TestAddressesThatAreRefused$",
		search:  "ip = ip.WithZone(\"\").Unmap()\n",
		replace: "ip = ip.WithZone(\"\")\n",
	},
	{
		name: "a check follows a redirect anywhere", guarantee: "G12",
		file: "health/probe.go", pkg: "./health", test: "^TestRedirectsAreNotFollowedAnywhere$",
		search:  "Control: a.control, ",
		replace: "",
	},
	{
		name: "what is forbidden whatever is allowed is allowed", guarantee: "G12",
		file: "health/address.go", pkg: "./health", test: "^TestAddressesThatAreRefused$",
		search:  "	if a.never != nil {\n",
		replace: "	if a.never != nil && !a.all {\n",
	},
	{
		name: "as many checks run at once as are due", guarantee: "G39",
		file: "health/schedule.go", pkg: "./health", test: "^TestRunsAreBounded$",
		search:  "	if s.running >= s.cfg.AtOnce || len(s.due) == 0 || s.due[0].due.After(now) {\n",
		replace: "	if len(s.due) == 0 || s.due[0].due.After(now) {\n",
	},
	{
		name: "an answer by DNS is as long as the question wants", guarantee: "G39",
		file: "door/dns/answer.go", pkg: "./door/dns", test: "^TestSizes$",
		search:  "min(max(int(o.UDPSize()), dns.MinMsgSize), MaxDatagram)",
		replace: "max(int(o.UDPSize()), dns.MinMsgSize)",
	},
	{
		name: "an alias looks at itself", guarantee: "G20",
		file: "health/alias.go", pkg: "./health", test: "^TestAlias$",
		search:  " || incumbent.Alike(of.Node, k.Node) && incumbent.Alike(of.ID, k.ID):",
		replace: ":",
	},
	{
		name: "checks connect to doors of other members", guarantee: "G12",
		file: "server/checks.go", pkg: "./server", test: "^TestChecksNeverReachTheCluster$",
		search:  "there && ours || ",
		replace: "",
	},
}
