package mutants

// ofCredentials are bugs of tokens, certificates and passwords.
var ofCredentials = []mutant{
	{
		name: "a credential that was revoked keeps its secret", guarantee: "G12",
		file: "core/credential/apply.go", pkg: "./core/credential", test: "^TestG12_ATokenFromItsCreationToItsEnd$",
		search:  "\t\tn.Secret = nil\n",
		replace: "",
	},
	{
		name: "a revoked certificate has to make room", guarantee: "G12",
		file: "core/credential/credential.go", pkg: "./core/credential", test: "^TestModel$",
		search:  "if !c.Live() && !c.Closing && !certificate {",
		replace: "if !c.Live() && !c.Closing {",
	},
	{
		name: "sessions that were to be closed are forgotten with their credential", guarantee: "G12",
		file: "core/credential/apply.go", pkg: "./core/credential", test: "^TestSessionsThatEndWithIt$",
		search:  "\tif o.Live() || o.Closing {\n",
		replace: "\tif o.Live() {\n",
	},
	{
		name: "a token lets in behind its end", guarantee: "G12",
		file: "auth/identify.go", pkg: "./auth", test: "^TestG12_WhoWasLetInStaysWhileTheProofIsGood$",
		search:  "\tcase who.Proof.over(a.now()):\n\t\treturn a.deny(Ended, incumbent.Errorf(incumbent.Denied, \"the credential of",
		replace: "\tcase false:\n\t\treturn a.deny(Ended, incumbent.Errorf(incumbent.Denied, \"the credential of",
	},
	{
		name: "who came in by a token of the same name stays", guarantee: "G12",
		file: "auth/identify.go", pkg: "./auth", test: "^TestG12_WhoWasLetInStaysWhileTheProofIsGood$",
		search:  "\treturn found && q == p\n",
		replace: "\treturn q == p || file.Len() > 0\n",
	},
	{
		name: "a revoked certificate stays connected", guarantee: "G12",
		file: "auth/identify.go", pkg: "./auth", test: "^TestG12_WhoWasLetInStaysWhileTheProofIsGood$",
		search:  "!a.trusts(p.Proof) || a.book.Revoked([]byte(p.Proof.ID))",
		replace: "!a.trusts(p.Proof)",
	},
	{
		name: "a member that is behind denies for good", guarantee: "G12",
		file: "auth/identify.go", pkg: "./auth", test: "^TestG12_WhoIsNotKnownYetIsNotDenied$",
		search:  "if err := a.book.Behind(); err != nil {",
		replace: "if err := a.book.Behind(); err != nil && false {",
	},
	{
		name: "a call that waits outlives its credential", guarantee: "G12",
		file: "door/native/upgrade.go", pkg: "./door/native", test: "^TestG12_RecheckEndsCalls$",
		search:  "\t\t\tb.cancel(errNotKnown())\n",
		replace: "",
	},
	{
		name: "guesses lock a tag for everybody", guarantee: "G12",
		file: "auth/guesses.go", pkg: "./auth", test: "^TestG12_GuessingDoesNotLockTheOwnerOut$",
		search:  "return guesser{from, maphash.String",
		replace: "return guesser{netip.Addr{}, maphash.String",
	},
	{
		name: "guesses are not counted", guarantee: "G12",
		file: "auth/verifier.go", pkg: "./auth", test: "^TestG12_GuessingDoesNotLockTheOwnerOut$",
		search:  "\tv.guesses.failed(from, scope, tag)\n",
		replace: "",
	},
	{
		name: "one address takes all turns", guarantee: "G39",
		file: "auth/turns.go", pkg: "./auth", test: "^TestTurns$",
		search:  "\tt.order = append(t.order, from)\n}",
		replace: "\tt.order = append([]netip.Addr{from}, t.order...)\n}",
	},
	{
		name: "a password of the book lets in behind its end", guarantee: "G12",
		file: "auth/verifier.go", pkg: "./auth", test: "^TestG12_PasswordsOfTheBook$",
		search:  "err == nil && !x.pass().Proof.over(v.cfg.Now())",
		replace: "err == nil",
	},
	{
		name: "what one asks for decides what a certificate is for", guarantee: "G12",
		file: "auth/ca/client.go", pkg: "./auth/ca", test: "^TestG12_ClientCertificate$",
		search:  "ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},",
		replace: "ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},",
	},
	{
		name: "connections outlive the authority that let them in", guarantee: "G12",
		file: "auth/identify.go", pkg: "./auth", test: "^TestG12_WhoCameInByAnAuthorityGoesWithIt$",
		search:  "if !a.trusts(p.Proof) || a.book.Revoked",
		replace: "if a.book.Revoked",
	},
	{
		name: "who reads a member's log by Consul's door goes on without a token", guarantee: "G12",
		file: "door/consul/shared.go", pkg: "./door/consul", test: "^TestG12_WhatTakesLongEndsWithItsToken$",
		search:  "\t\tr.endUnknown()\n",
		replace: "",
	},
}
