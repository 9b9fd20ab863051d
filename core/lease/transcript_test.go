package lease

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// TestTranscripts runs the files below testdata, one for each family of
// commands. They read as the protocol of the replicated state.
//
//	apply            one batch: a command a line, see parseCommand
//	show NAME        a lease's record
//	history NAME     what became of it
//	session ID       a session, its leases and its queues
//	leases …         namespace= model= prefix= after=
//	state            index, floor and counts
//	limits …         makes limits smaller
//	members          all of them, and how many are gone
//	restart          goes on from a snapshot, which must give the same state
//
// A name is LEASE, MODEL/LEASE or NAMESPACE/MODEL/LEASE. A session's id is its
// text, filled up with zeros.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := New()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			s = runDirective(t, s, d, &out)
			if err := s.Check(); err != nil {
				d.Fatalf(t, "broken invariant: %v", err)
			}
			return out.String()
		})
	})
}

func runDirective(t *testing.T, s *state, d *datadriven.TestData, out *strings.Builder) *state {
	switch d.Cmd {
	case "apply":
		runBatch(t, s, d, out)
	case "show":
		writeLease(out, s.View(), parseName(d.CmdArgs[0].Key))
	case "history":
		for _, c := range Of(s.View()).Lease(parseName(d.CmdArgs[0].Key)).History() {
			out.WriteString(formatChange(c) + "\n")
		}
	case "session":
		writeSession(out, s.View(), sessionID(d.CmdArgs[0].Key))
	case "leases":
		args := make(map[string]string)
		for _, a := range d.CmdArgs {
			args[a.Key] = a.Vals[0]
		}
		var after incumbent.Name
		if args["after"] != "" {
			after = parseName(args["after"])
		}
		Of(s.View()).Below(args["namespace"], args["model"], args["prefix"], after, func(l *Lease) bool {
			out.WriteString(l.Name.String() + "\n")
			return true
		})
	case "state":
		v := s.View()
		fmt.Fprintf(out, "index=%d held=%d records=%d pinned=%d sessions=%d waiters=%d kept=%d floor=%d\n", v.Index(),
			Of(v).HeldCount(), Of(v).Len(), Of(v).PinnedCount(), v.SessionCount(), Of(v).WaiterCount(), v.KeptCount(), v.KeysFloor())
	case "members":
		for _, m := range s.View().Members() {
			out.WriteString(formatMember(&m) + "\n")
		}
		fmt.Fprintf(out, "gone=%d active schema=%d\n", s.View().GoneMemberCount(), s.View().ActiveSchema())
	case "limits":
		for _, a := range d.CmdArgs {
			n, err := strconv.Atoi(a.Vals[0])
			must(t, err)
			limits := s.limits
			*map[string]*int{
				"leases": &limits.leases, "sessions": &limits.Sessions, "queue": &limits.queue, "kept": &limits.Kept,
				"per-session": &limits.perSession, "waits": &limits.waits, "free": &limits.free,
				"members": &limits.Members, "gone": &limits.Gone,
			}[a.Key] = n
			s.limit(limits)
		}
	case "restart":
		return restart(t, s)
	default:
		d.Fatalf(t, "unknown directive %q", d.Cmd)
	}
	return s
}

// fatal is what testing and rapid have in common.
type fatal interface{ Fatalf(string, ...any) }

// restart returns the state as a snapshot of it gives it.
func restart(t fatal, s *state) *state {
	n := reload(t, s.View())
	n.limit(s.limits)
	return n
}

func reload(t fatal, v *core.View) *state {
	var buf bytes.Buffer
	if err := v.WriteSnapshot(&buf); err != nil {
		t.Fatalf("writing a snapshot: %v", err)
	}
	n, err := Restore(&buf)
	if err != nil {
		t.Fatalf("restoring a snapshot: %v", err)
	}
	if n.View().Hash() != v.Hash() {
		t.Fatalf("the restored state has another hash")
	}
	return n
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func runBatch(t *testing.T, s *state, d *datadriven.TestData, out *strings.Builder) {
	lines := strings.Split(d.Input, "\n")
	cmds := make([][]byte, len(lines))
	for i, line := range lines {
		cmds[i] = parseCommand(t, line)
	}
	results := make([]core.Result, len(cmds))
	changes := s.Apply(cmds, results)
	defer writeQueues(out, s.View(), changes)
	for i, r := range results {
		fmt.Fprintf(out, "%d %s\n", r.Index, formatResult(r))
		for len(changes) > 0 && !r.Replayed && changes[0].Index < nextIndex(results[i+1:]) {
			out.WriteString("  " + formatEvent(changes[0]) + "\n")
			changes = changes[1:]
		}
	}
	if len(changes) > 0 {
		d.Fatalf(t, "%d changes belong to no command", len(changes))
	}
}

// writeQueues writes the queues of the leases that changed, as the batch left
// them.
func writeQueues(out *strings.Builder, v *core.View, changes []core.Change) {
	seen := make(map[incumbent.Name]bool)
	for i := range changes {
		c, _ := ChangeOf(&changes[i])
		if c.Lease == nil || seen[c.Lease.Name] {
			continue
		}
		seen[c.Lease.Name] = true
		if q := queueText(v, c.Lease.Name); q != "" {
			fmt.Fprintf(out, "queue of %s: %s\n", shortName(c.Lease.Name), q)
		}
	}
}

func queueText(v *core.View, name incumbent.Name) string {
	var q []string
	for w := range Of(v).Queue(name) {
		q = append(q, who(w.Holder, w.Session))
	}
	return strings.Join(q, ",")
}

// nextIndex is that of the next command which may have changed something.
func nextIndex(results []core.Result) incumbent.Index {
	for _, r := range results {
		if !r.Replayed {
			return r.Index
		}
	}
	return ^incumbent.Index(0)
}

func formatResult(r core.Result) string {
	a := AnswerOf(r)
	var b strings.Builder
	if r.Err != nil {
		b.WriteString(r.Err.Error())
	} else {
		b.WriteString("ok")
	}
	for _, f := range []struct {
		on   bool
		text string
	}{{a.Granted, " granted"}, {a.Queued, fmt.Sprintf(" queued, place %d", a.Position)}, {r.Replayed, " replayed"}} {
		if f.on {
			b.WriteString(f.text)
		}
	}
	if a.Lease != nil {
		b.WriteString(" | " + formatLease(a.Lease))
	}
	if r.Session != nil {
		b.WriteString(" | " + formatSession(r.Session))
	}
	if r.Member != nil {
		b.WriteString(" | " + formatMember(r.Member))
	}
	return b.String()
}

// formatEvent gives a change with what is there after it.
func formatEvent(c core.Change) string {
	l, is := ChangeOf(&c)
	what, late, by := c.What.String(), c.Late, c.By
	if is {
		what, late, by = l.What.String(), l.Late(), l.By()
	}
	s := fmt.Sprintf("%d %s", c.Index, what)
	if late != 0 {
		s += fmt.Sprintf(" late=%v", late)
	}
	if by != "" {
		s += " by=" + by
	}
	switch {
	case l.Lease != nil:
		s += " | " + formatLease(l.Lease)
	case l.LeaseBefore != nil:
		s += " | no record of " + shortName(l.LeaseBefore.Name)
	}
	switch {
	case c.Session != nil:
		s += " | " + formatSession(c.Session)
	case c.SessionBefore != nil:
		s += " | no session " + sessionText(c.SessionBefore.ID)
	}
	switch {
	case c.Member != nil:
		s += " | " + formatMember(c.Member)
	case c.MemberBefore != nil:
		s += fmt.Sprintf(" | no member %d", c.MemberBefore.ID)
	}
	return s
}

func formatLease(l *Lease) string {
	s := shortName(l.Name) + ": free"
	if !l.Free() {
		s = fmt.Sprintf("%s: %s token=%d renewal=%d", shortName(l.Name), who(l.Holder, l.Session), l.Token, l.Renewal)
	}
	if l.TTL != 0 {
		s += fmt.Sprintf(" ttl=%v", l.TTL)
	}
	for _, f := range []struct {
		on   bool
		text string
	}{{l.Offered, " offered"}, {l.Critical, " critical"}, {l.Revoking, " revoking"}} {
		if f.on {
			s += f.text
		}
	}
	if len(l.Pins) > 0 {
		s += " pins=" + strings.Join(l.Pins, ",")
	}
	if l.Waiting > 0 {
		s += fmt.Sprintf(" waiting=%d", l.Waiting)
	}
	return s
}

func formatSession(s *core.Session) string {
	return fmt.Sprintf("session %s renewal=%d ttl=%v", sessionText(s.ID), s.Renewal, s.TTL)
}

func formatMember(m *core.Member) string {
	s := fmt.Sprintf("member %d %s since=%d schema=%d", m.ID, m.Name, m.Since, m.Schema)
	for _, f := range []struct{ what, text string }{{"peer", m.PeerAddress}, {"url", m.ClientURL}, {"version", m.Version}} {
		if f.text != "" {
			s += fmt.Sprintf(" %s=%s", f.what, f.text)
		}
	}
	if m.Learner {
		s += " learner"
	}
	return s
}

func formatChange(c LeaseChange) string {
	s := fmt.Sprintf("%d %v", c.Index, c.What)
	if c.Holder != "" {
		s += fmt.Sprintf(" %s token=%d", c.Holder, c.Token)
	}
	if c.Late != 0 {
		s += fmt.Sprintf(" late=%v", c.Late)
	}
	if c.By != "" {
		s += " by=" + c.By
	}
	if o := c.Origin; *o != (core.Origin{}) {
		s += fmt.Sprintf(" at=%s door=%s from=%s who=%s", o.At.Format(time.RFC3339Nano), o.Door, o.Address, o.Principal)
	}
	return s
}

func writeLease(out *strings.Builder, v *core.View, name incumbent.Name) {
	l := Of(v).Lease(name)
	if l == nil {
		out.WriteString("no record\n")
		return
	}
	out.WriteString(formatLease(l) + "\n")
	if q := queueText(v, name); q != "" {
		out.WriteString("queue=" + q + "\n")
	}
	fmt.Fprintf(out, "last token=%d modified=%d previous=%q\n", l.LastToken, l.Modified, l.PreviousHolder)
}

func writeSession(out *strings.Builder, v *core.View, id incumbent.SessionID) {
	s := v.Session(id)
	if s == nil {
		out.WriteString("not open\n")
		return
	}
	out.WriteString(formatSession(s) + "\n")
	Of(v).OfSession(id, func(l *Lease) bool {
		out.WriteString("owns " + formatLease(l) + "\n")
		return true
	})
	Of(v).WaitsOf(id, func(l *Lease) bool {
		out.WriteString("waits for " + formatLease(l) + "\n")
		return true
	})
}

func who(holder string, id incumbent.SessionID) string {
	if id.IsZero() {
		return holder
	}
	return holder + "@" + sessionText(id)
}

func sessionID(s string) incumbent.SessionID {
	var id incumbent.SessionID
	copy(id[:], s)
	return id
}

func sessionText(id incumbent.SessionID) string { return strings.TrimRight(string(id[:]), "\x00") }

func shortName(n incumbent.Name) string {
	s := n.Lease
	if n.Model != "m" || n.Namespace != "n" {
		s = n.Model + "/" + s
	}
	if n.Namespace != "n" {
		s = n.Namespace + "/" + s
	}
	return s
}

func parseName(s string) incumbent.Name {
	n := incumbent.Name{Namespace: "n", Model: "m"}
	parts := strings.Split(s, "/")
	n.Lease = parts[len(parts)-1]
	if len(parts) > 1 {
		n.Model = parts[len(parts)-2]
	}
	if len(parts) > 2 {
		n.Namespace = parts[0]
	}
	return n
}

// words are the parts of a command's line: positional ones and key=value.
type words struct {
	t     *testing.T
	pos   []string
	flags map[string]string
	used  map[string]bool
}

func (w *words) at(i int) string {
	if i < len(w.pos) {
		return w.pos[i]
	}
	return ""
}

func (w *words) str(key string) string { w.used[key] = true; return w.flags[key] }
func (w *words) has(key string) bool   { w.used[key] = true; _, ok := w.flags[key]; return ok }
func (w *words) id(key string) incumbent.SessionID {
	return sessionID(w.str(key))
}

// ids reads SESSION,SESSION…
func (w *words) ids(key string) []incumbent.SessionID {
	var list []incumbent.SessionID
	if s := w.str(key); s != "" {
		for _, id := range strings.Split(s, ",") {
			list = append(list, sessionID(id))
		}
	}
	return list
}

func (w *words) num(key string) uint64 { return w.parseNum(w.str(key)) }

func (w *words) parseNum(s string) uint64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	must(w.t, err)
	return n
}

func (w *words) dur(key string) time.Duration {
	if !w.has(key) {
		return 0
	}
	d, err := time.ParseDuration(w.flags[key])
	must(w.t, err)
	return d
}

// party reads HOLDER, HOLDER@SESSION or @SESSION.
func (w *words) party(i int) (string, incumbent.SessionID) {
	holder, id, _ := strings.Cut(w.at(i), "@")
	return holder, sessionID(id)
}

var bareFlags = []string{"wait", "critical", "at-deadline", "learner"}

// parseCommand reads a line: VERB ARGUMENTS key=value…, see the cases. door,
// from, who and at (milliseconds) give the origin; key and base the key.
func parseCommand(t *testing.T, line string) []byte {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	w := &words{t: t, flags: make(map[string]string), used: make(map[string]bool)}
	for _, f := range strings.Fields(rest) {
		if k, v, ok := strings.Cut(f, "="); ok {
			w.flags[k] = v
		} else if slices.Contains(bareFlags, f) {
			w.flags[f] = ""
		} else {
			w.pos = append(w.pos, f)
		}
	}
	if verb == "raw" {
		b, err := hex.DecodeString(strings.Join(w.pos, ""))
		must(t, err)
		return b
	}
	meta := core.Meta{KeyID: []byte(w.str("key")), KeyBase: incumbent.Index(w.num("base"))}
	meta.Origin = core.Origin{Door: w.str("door"), Address: w.str("from"), Principal: w.str("who")}
	if w.has("at") {
		meta.Origin.At = time.UnixMilli(int64(w.num("at")))
	}
	b := w.command(verb).Encode(meta)
	for k := range maps.Keys(w.flags) {
		if !w.used[k] {
			t.Fatalf("%q has no %s", verb, k)
		}
	}
	return b
}

func (w *words) command(verb string) core.Command {
	name := parseName(w.at(0))
	holder, session := w.party(1)
	token := incumbent.Token(w.num("token"))
	switch verb {
	case "claim": // NAME HOLDER[@SESSION] ttl= token= wait critical
		return ClaimCommand{Name: name, Holder: holder, Session: session, TTL: w.dur("ttl"), Wait: w.has("wait"), Critical: w.has("critical"), Token: token}
	case "accept": // TOKEN
		return AcceptCommand{Token: incumbent.Token(w.parseNum(w.at(0)))}
	case "release": // NAME [HOLDER[@SESSION]] token= next= absent=
		return ReleaseCommand{Name: name, Holder: holder, Session: session, Token: token, Next: w.id("next"), Absent: w.ids("absent")}
	case "revoke": // NAME token= by= next= absent= at-deadline
		return RevokeCommand{Name: name, Token: token, By: w.str("by"), Next: w.id("next"), AtDeadline: w.has("at-deadline"), Absent: w.ids("absent")}
	case "transfer": // NAME HOLDER[@SESSION] [HOLDER]@SESSION token=
		to, toSession := w.party(2)
		return TransferCommand{Name: name, Holder: holder, Session: session, Token: token, ToSession: toSession, ToHolder: to}
	case "expire": // TOKEN renewal= late= next= absent=
		t := incumbent.Token(w.parseNum(w.at(0)))
		return ExpireCommand{Token: t, Renewal: w.num("renewal"), Late: w.dur("late"), Next: w.id("next"), Absent: w.ids("absent")}
	case "pin": // NAME ENTITY
		return PinCommand{Name: name, Entity: w.at(1)}
	case "unpin": // NAME ENTITY
		return UnpinCommand{Name: name, Entity: w.at(1)}
	case "leave": // NAME [HOLDER]@SESSION
		return LeaveQueueCommand{Name: name, Session: session, Holder: holder}
	case "open": // SESSION ttl=
		return core.OpenSessionCommand{ID: sessionID(w.at(0)), TTL: w.dur("ttl")}
	case "close": // SESSION reason= absent=
		return core.CloseSessionCommand{ID: sessionID(w.at(0)), Reason: w.str("reason"), Absent: w.ids("absent")}
	case "expire-session": // SESSION renewal= late= absent=
		return core.ExpireSessionCommand{ID: sessionID(w.at(0)), Renewal: w.num("renewal"), Late: w.dur("late"), Absent: w.ids("absent")}
	case "extend-session": // SESSION ttl=
		return core.ExtendSessionCommand{ID: sessionID(w.at(0)), TTL: w.dur("ttl")}
	case "trim": // INDEX
		return core.TrimKeysCommand{Through: incumbent.Index(w.parseNum(w.at(0)))}
	case "raise": // INDEX
		return core.RaiseIndexCommand{To: incumbent.Index(w.parseNum(w.at(0)))}
	case "epoch":
		return core.EpochCommand{}
	case "checkpoint":
		return core.CheckpointCommand{}
	case "put-member": // ID NAME schema= peer= url= version= learner
		m := core.Member{ID: w.parseNum(w.at(0)), Name: w.at(1), Schema: core.SchemaVersion, PeerAddress: w.str("peer"), ClientURL: w.str("url"), Version: w.str("version")}
		if m.Learner = w.has("learner"); w.has("schema") {
			m.Schema = uint32(w.num("schema"))
		}
		return core.PutMemberCommand{Member: m}
	case "remove-member": // ID
		return core.RemoveMemberCommand{ID: w.parseNum(w.at(0))}
	}
	w.t.Fatalf("unknown command %q", verb)
	return nil
}
