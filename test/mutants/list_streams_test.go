package mutants

// ofStreams are bugs of what is told in pieces: watches and long lists.
var ofStreams = []mutant{
	{
		name: "progress counts an index that is not whole", guarantee: "G17",
		file: "watch/cursor.go", pkg: "./watch", test: "^TestG15_AnIndexLargerThanAPull$",
		search:  "\t\tif e.Index != last {\n",
		replace: "\t\tif e.Index >= last {\n",
	},
	{
		name: "a watch does not wait for its connection", guarantee: "G18",
		file: "door/native/stream_watch.go", pkg: "./door/native", test: "^TestG15_G16_G18_AnIndexLargerThanAQueue$",
		search:  "if c.Queued() <= MaxWatchBacklog {",
		replace: "if c.Queued() >= 0 {",
	},
	{
		name: "a watch that waits for its connection is forgotten", guarantee: "G15",
		file: "park/queue.go", pkg: "./park", test: "^TestWhenDrained$",
		search:  "told := c.out.drained\n",
		replace: "told := c.out.drained[:0]\n",
	},
	{
		name: "an index that does not exist is waited for in silence", guarantee: "G16",
		file: "door/native/watch.go", pkg: "./door/native", test: "^TestG14_G16_ResumeAfterAnIndexToCome$",
		search:  "if at := confirmed.Index(); i > at {",
		replace: "if at := confirmed.Index(); i > at && at == 0 {",
	},
	{
		name: "a member that is behind takes itself for the cluster", guarantee: "G14",
		file: "door/native/stream_watch.go", pkg: "./door/native", test: "^TestG14_G16_ResumeAfterAnIndexToCome$",
		search:  "\td.confirm(func(err error) {\n",
		replace: "\tfunc(done func(error)) { done(nil) }(func(err error) {\n",
	},
	{
		name: "every watch has events encoded for itself", guarantee: "G21",
		file: "door/native/piece.go", pkg: "./door/native", test: "^TestG21_PiecesShareTheirEncoding$",
		search:  "\t\tb = append(b, p.door.encodedEvent(p.form, e)...)\n",
		replace: "\t\tb = appendEvent(b, p.door.former().eventOf(e, p.form.values))\n",
	},
	{
		name: "who wants fewer values has what another has made", guarantee: "G21",
		file: "door/native/piece.go", pkg: "./door/native", test: "^TestG18_G21_LargeValuesAreTheReadersChoice$",
		search:  "return e.Encode(f.encoding(first), ",
		replace: "return e.Encode(first, ",
	},
	{
		name: "a change of another field wakes who names fields", guarantee: "G19",
		file: "watch/selector.go", pkg: "./door/native", test: "^TestG19_WatchersAreWokenForTheirFields$",
		search:  "return x.changed&s.fields != 0 || ",
		replace: "return x.changed != 0 || ",
	},
	{
		name: "a change of another part wakes who names parts", guarantee: "G19",
		file: "core/kv/part.go", pkg: "./door/native", test: "^TestG19_WatchersAreToldOfTheirPartsAlone$",
		search:  "return had != has || !reflect.DeepEqual(x, y)",
		replace: "return had != has || !reflect.DeepEqual(x, y) || had == has",
	},
	{
		name: "a watch that catches up is not told of what was deleted", guarantee: "G16",
		file: "door/native/keys_watch.go", pkg: "./door/native", test: "^TestG16_CatchingUpWithoutHistory$",
		search:  "if after == 0 || s.lastDeletion(kv.Of(v)) > after {",
		replace: "if after == 0 {",
	},
	{
		name: "what waits for a session is begun without it", guarantee: "G12",
		file: "door/native/start.go", pkg: "./door/native", test: "^TestG12_AStartNeedsTheSession$",
		search:  "\tfor _, f := range st.then {\n\t\tst.s.refuse(f.GetId(), err)\n\t}\n",
		replace: "\tst.attached(nil)\n",
	},
	{
		name: "who selects by a value is not told that it was given up", guarantee: "G15",
		file: "watch/registry.go", pkg: "./watch", test: "^TestG15_G16_G17_G18_ReadersMatchANaiveList$",
		search:  "for _, v := range values[:n] {",
		replace: "for _, v := range values[n/2 : n] {",
	},
	{
		name: "a range of topics is looked for up to the first that ends", guarantee: "G15",
		file: "watch/intervals.go", pkg: "./watch", test: "^TestG15_G16_G17_G18_ReadersMatchANaiveList$",
		search:  "part.farthest > t.farthest",
		replace: "part.farthest < t.farthest",
	},
	{
		name: "a query forgets what it has looked for in vain", guarantee: "G19",
		file: "engine/reading.go", pkg: "./door/native", test: "^TestG19_ABlockedReadOfAnAbsentKey$",
		search:  "\tr.notes.Note(watch.Exact(FamilyTopic(kv.Number, kv.TopicOf(k))))\n\tif e = r.view.Entry(k); e == nil {\n",
		replace: "\tif e = r.view.Entry(k); e != nil {\n\t\tr.notes.Note(watch.Exact(FamilyTopic(kv.Number, kv.TopicOf(k))))\n\t}\n\tif e == nil {\n",
	},
	{
		name: "a query depends on what its first evaluation has read", guarantee: "G19",
		file: "watch/query.go", pkg: "./watch", test: "^TestG19_G21_QueriesMatchNaiveEvaluation$",
		search:  "if !q.gone && !slices.Equal(reads, q.reads) {",
		replace: "if !q.gone && q.reads == nil {",
	},
	{
		name: "a query tells of a result that was right once", guarantee: "G14",
		file: "watch/query.go", pkg: "./watch", test: "^TestG19_G21_QueriesMatchNaiveEvaluation$",
		search:  "w.want.AtLeast = at //",
		replace: "_ = at //",
	},
	{
		name: "an equal result wakes who waits by hash", guarantee: "G19",
		file: "watch/query.go", pkg: "./watch", test: "^TestG19_WaitsByHashEndWithTheirTime$",
		search:  "a.Hash != w.Not",
		replace: "a.Hash != (Hash{})",
	},
	{
		name: "every caller has an answer encoded for itself", guarantee: "G21",
		file: "watch/query.go", pkg: "./door/native", test: "^TestG19_G21_BlockedReadsShareOneEvaluation$",
		search:  "b, fresh := a.get(k, func() []byte { return f(a.Value) })",
		replace: "b, fresh := f(a.Value), true",
	},
	{
		name: "a stream's watch of keys needs no right", guarantee: "G12",
		file: "door/native/keys_watch.go", pkg: "./door/native", test: "^TestStreamsEndWatchesOfKeys$",
		search:  "\t_, err = sel.sight(d)\n\treturn sel, err\n",
		replace: "\treturn sel, nil\n",
	},
	{
		name: "a watch of keys tells what is as what was", guarantee: "G15",
		file: "door/native/keys_watch.go", pkg: "./door/native", test: "^TestG15_G16_WatchOfKeysComposes$",
		search:  "Previous: f.entry(before, ",
		replace: "Previous: f.entry(after, ",
	},
	{
		name: "a page of what a session has does not say that there is more", guarantee: "G18",
		file: "door/native/page.go", pkg: "./door/native", test: "^TestG18_ASessionIsToldInPages$",
		search:  "\t\t\to.next = namePB(after)\n",
		replace: "",
	},
	{
		name: "the client yields changes of an index that is not whole", guarantee: "G15",
		file: "client/watch.go", pkg: "./client", test: "^TestG15_ChangesOfAnIndexAreYieldedTogether$",
		search:  "return events[i].GetIndex() > progress })",
		replace: "return events[i].GetIndex() > 1<<63 })",
	},
	{
		name: "a session loses the leases of all pages but the first", guarantee: "G04",
		file: "client/connect.go", pkg: "./client", test: "^TestG04_ASessionOfManyPagesIsResumed$",
		search:  "for next := a.GetNext(); next != nil; {",
		replace: "for next := (*apiv1.LeaseName)(nil); next != nil; {",
	},
}
