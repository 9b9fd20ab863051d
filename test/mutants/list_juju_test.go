package mutants

// ofJuju are bugs of the door for Juju's agents.
var ofJuju = []mutant{
	{
		name: "a unit claims for another of its application", guarantee: "G12",
		file: "door/juju/login.go", pkg: "./door/juju", test: "^TestG12_UnitsActOnlyForThemselves$",
		search:  "return c.allowed(calls.JujuClaim, nameOf(c.who.model, application), unit)",
		replace: "return c.allowed(calls.JujuClaim, nameOf(c.who.model, application), c.who.principal.Name)",
	},
	{
		name: "an agent follows an application that is not its own", guarantee: "G12",
		file: "door/juju/login.go", pkg: "./door/juju", test: "^TestG12_UnitsActOnlyForThemselves$",
		search:  "return (a.grants.Has(auth.ClaimAny) || a.application == application) && ",
		replace: "return (a.grants.Has(auth.ClaimAny) || a.application != \"\") && ",
	},
	{
		name: "a password that is replaced while it is verified still counts", guarantee: "G12",
		file: "auth/verifier.go", pkg: "./auth", test: "^TestReplacedWhileVerified$",
		search:  ", f.err == nil && !v.Knows(scope, tag, f.pass):",
		replace: ":",
	},
	{
		name: "extensions of Juju's go by the lane of claims", guarantee: "G40",
		file: "door/juju/bulk.go", pkg: "./door/juju", test: "^TestG40_ExtensionsAndControllersGoByTheirOwnLanes$",
		search:  "\treturn admit.Extensions\n",
		replace: "\treturn admit.Claims\n",
	},
	{
		name: "extensions wait with the claims of their call", guarantee: "G40",
		file: "door/juju/bulk.go", pkg: "./door/juju", test: "^TestG40_ExtensionsAndControllersGoByTheirOwnLanes$",
		search:  "\tk.c.door.counts.bulks.Add(1)\n\tk.split()\n",
		replace: "\tk.c.door.counts.bulks.Add(1)\n",
	},
	{
		name: "what was granted early and is over is told as held", guarantee: "G40",
		file: "door/juju/bulk.go", pkg: "./door/juju", test: "^TestG40_WhatMayBeOverIsAskedAgain$",
		search:  "if g == nil || k.c.door.monotonic() <= g.until {",
		replace: "if g == nil || k.c.door.monotonic() != 0 {",
	},
	{
		name: "calls of Juju's agents wait in line when memory is short", guarantee: "G39",
		file: "door/juju/door.go", pkg: "./door/juju", test: "^TestG39_LinesGiveWay$",
		search:  "case d.lanes.Holds(l) != nil:",
		replace: "case d.lanes.Holds(admit.Critical) != nil:",
	},
	{
		name: "what was granted early and is over is told as held when memory is short", guarantee: "G40",
		file: "door/juju/bulk.go", pkg: "./door/juju", test: "^TestG40_WhatMayBeOverIsNotToldWhenMemoryIsShort$",
		search:  "if k.early != nil && k.c.door.monotonic() > k.early.until {",
		replace: "if false {",
	},
	{
		name: "a call whose connection has ended stands in line until its turn", guarantee: "G39",
		file: "door/juju/door.go", pkg: "./door/juju", test: "^TestClaimsWaitForAPlaceInside$",
		search:  "\tcase k.c.isGone():\n\t\tk.abandon()\n\tcase d.lanes",
		replace: "\tcase d.lanes",
	},
	{
		name: "any number of calls of Juju's agents wait", guarantee: "G39",
		file: "door/juju/facades.go", pkg: "./door/juju", test: "^TestG39_WhatWaitsIsBounded$",
		search:  "bytes := callBytes + int64(n)*waitingItemBytes\n",
		replace: "bytes := int64(1)\n",
	},
	{
		name: "a controller's lease may be refused", guarantee: "G40",
		file: "calls/table.go", pkg: "./door/juju", test: "^TestG40_ExtensionsAndControllersGoByTheirOwnLanes$",
		search:  "Lane: admit.Critical, Note: \"controllers only\"",
		replace: "Lane: admit.Claims, Note: \"controllers only\"",
	},
	{
		name: "a wait that is tried again forgets which holding it saw", guarantee: "G10",
		file: "door/juju/block.go", pkg: "./door/juju", test: "^TestG10_AWaitThatIsTriedAgainKnowsItsHolding$",
		search:  "b.token = b.wait.Token()",
		replace: "_ = b.wait.Token()",
	},
	{
		name: "a request is read the short way although it is not whole", guarantee: "G45",
		file: "door/juju/plain.go", pkg: "./door/juju", test: "^TestPlainIsWhatClientsWrite$",
		search:  "!json.Valid(params)",
		replace: "json.Valid(nil)",
	},
	{
		name: "a silent agent keeps its connection", guarantee: "G47",
		file: "door/juju/login.go", pkg: "./door/juju", test: "^TestG47_SilenceAndClosing$",
		search:  "\tparked.SetIdleTimeout(d.limits.Load().Silence)\n",
		replace: "",
	},
	{
		name: "who is about to greet outlives the door", guarantee: "G48",
		file: "accept/accept.go", pkg: "./accept", test: "^TestWaitsForWhoGreets$",
		search:  "\tp.greeters.Add(1)\n",
		replace: "\tp.greeters.Add(0)\n",
	},
	{
		name: "a wait outlives the right to wait", guarantee: "G12",
		file: "door/juju/block.go", pkg: "./door/juju", test: "^TestG12_WaitsEndWithTheirPermission$",
		search:  "\tif wait != nil && wait.Cancel() {\n\t\tb.refused()",
		replace: "\tif false && wait != nil {\n\t\tb.refused()",
	},
	{
		name: "a wait that is tried again is not judged", guarantee: "G12",
		file: "door/juju/block.go", pkg: "./door/juju", test: "^TestG12_AWaitThatIsTriedAgainIsJudgedAnew$",
		search:  "func (b *block) may() bool {",
		replace: "func (b *block) may() bool {\n\tif b.tries > 0 {\n\t\treturn true\n\t}",
	},
}
