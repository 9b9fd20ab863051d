package native

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/auth/ca"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

// What callers change, and what they are not let do, is handed on to whoever counts
// and records it: of a call by what goes round every call, of the steps of a batch
// and of a stream, and of extensions, one by one. What only reads is handed on if it
// is denied.

// note hands a record of a caller on. What a message names may be as long as the message is.
func (d *Door) note(who *caller, r audit.Record) {
	r.Door, r.Address, r.Principal = doorName, who.address, who.name()
	r.Subject, r.Detail = audit.Bounded(r.Subject), audit.Bounded(r.Detail)
	d.audit(r)
}

// deniedLogin hands on that somebody brought what proves nobody, and returns why.
func (d *Door) deniedLogin(address string, err error) error {
	if incumbent.KindOf(err) == incumbent.Denied {
		d.audit(audit.Record{Door: doorName, Address: address, Action: audit.Login, Outcome: audit.Denied, Reason: audit.Identity})
	}
	return err
}

// denied hands on that a caller may not do an action, if err says so, and returns it.
func (d *Door) denied(who *caller, a auth.Action, subject string, err error) error {
	if incumbent.KindOf(err) == incumbent.Denied {
		d.note(who, audit.Record{Action: a.String(), Subject: subject, Outcome: audit.Denied, Reason: audit.Permission})
	}
	return err
}

// deniedUse is denied for what is done with a session.
func (d *Door) deniedUse(who *caller, a auth.Action, id incumbent.SessionID, err error) error {
	if incumbent.KindOf(err) == incumbent.Denied {
		d.note(who, audit.Record{Action: a.String(), Subject: audit.Session(id), Outcome: audit.Denied, Reason: d.reasonFor(who, id)})
	}
	return err
}

// deniedOp is denied for a step that is refused before it is tried.
func (d *Door) deniedOp(who *caller, o *operation, err error) error {
	if incumbent.KindOf(err) == incumbent.Denied {
		d.noteOp(who, o, audit.Record{Outcome: audit.Denied, Reason: d.reasonFor(who, o.session)})
	}
	return err
}

// deniedExtension is denied for an extension.
func (d *Door) deniedExtension(who *caller, e *lease.Extension, err error) error {
	o := operation{action: auth.Extend, token: e.Token, session: e.Session}
	if e.Named != nil {
		o.name, o.holder = e.Named.Name, e.Named.Holder
	}
	return d.deniedOp(who, &o, err)
}

// settledOp hands on what became of a step that was tried: nothing if it changed
// nothing.
func (d *Door) settledOp(who *caller, o *operation, r *core.Result) {
	switch {
	case r.Err == nil && o.txn != nil:
		if names := changedBy(o.txn, r); !names.None() {
			d.noteOp(who, o, audit.Record{Outcome: audit.Done, Subject: names.String(), Index: uint64(r.Index)})
		}
	case r.Err == nil:
		if o.changed(r) {
			d.noteOp(who, o, audit.Record{Outcome: audit.Done, Index: uint64(r.Index)})
		}
	case r.Err.Kind == incumbent.Denied:
		d.noteOp(who, o, audit.Record{Outcome: audit.Denied, Reason: d.reasonFor(who, o.session), Index: uint64(r.Index)})
	case r.Err.Kind == incumbent.Unknown:
		d.noteOp(who, o, audit.Record{Outcome: audit.Unknown})
	}
}

// changed reports whether a step that succeeded has done something: a claim that
// only extends has not, and neither has a release that comes too late.
func (o *operation) changed(r *core.Result) bool {
	switch o.action {
	case auth.Claim:
		return leases.AnswerOf(*r).Granted || leases.AnswerOf(*r).Queued
	case auth.Release:
		return leases.AnswerOf(*r).Lease != nil && leases.AnswerOf(*r).Lease.Modified == r.Index
	}
	return changes(r)
}

// changes reports whether a command of a family that has succeeded has done something.
func changes(r *core.Result) bool {
	return !r.Idle && kv.Changed(r)
}

func (d *Door) noteOp(who *caller, o *operation, r audit.Record) {
	if r.Subject == "" {
		r.Subject = o.subject()
	}
	r.Action, r.Detail = o.action.String(), holderDetail(o.holder)
	d.note(who, r)
}

// subject is what a step is about.
func (o *operation) subject() string {
	switch {
	case o.txn != nil:
		return txnSubject(o.txn)
	case o.name.Model == "" && o.name != incumbent.Name{}: // of a key
		return subjectIn(o.name.Namespace, o.name.Lease)
	case o.name != incumbent.Name{}:
		return o.name.String()
	case !o.session.IsZero():
		return audit.Session(o.session)
	case o.token != 0:
		return "token " + o.token.String()
	}
	return ""
}

// subjectIn is what records call a name of a namespace: of a key, a node, a database.
func subjectIn(namespace, name string) string {
	return audit.In(cmp.Or(namespace, incumbent.DefaultNamespace), name)
}

func holderDetail(holder string) string {
	if holder == "" {
		return ""
	}
	return "for " + holder
}

// reasonFor is why a caller is denied something: if the session it names is
// another's, for that.
func (d *Door) reasonFor(who *caller, id incumbent.SessionID) audit.Reason {
	if s := d.view().Session(id); s != nil && !s.UsableBy(who.name()) {
		return audit.Owner
	}
	return audit.Permission
}

// settledCall hands on what became of a call.
func (d *Door) settledCall(who *caller, procedure string, in, out any, err error) {
	r := audit.Record{Action: actionOfCall(procedure)}
	switch connect.CodeOf(err) {
	case connect.CodePermissionDenied:
		r.Outcome, r.Reason = audit.Denied, d.reasonFor(who, sessionIn(in))
	case connect.CodeUnknown:
		if err != nil {
			r.Outcome = audit.Unknown
		}
	}
	switch {
	case r.Outcome == audit.Denied:
	case onlyReads(procedure), itemised(procedure), err == nil && (idle(out) || who.says().idle):
		return
	case err != nil && r.Outcome != audit.Unknown:
		if _, joins := in.(*pb.JoinRequest); !joins && r.Action != auth.Admin.String() {
			return
		}
		r.Outcome = audit.Failed
	}
	r.Detail = detailOf(in)
	if r.Outcome == audit.Failed {
		r.Detail = strings.TrimPrefix(r.Detail+", "+connect.CodeOf(err).String(), ", ")
	}
	if err == nil {
		if i, ok := out.(interface{ GetIndex() uint64 }); ok {
			r.Index = i.GetIndex()
		}
		r.Subject = who.says().subject
	}
	if r.Subject == "" {
		r.Subject = cmp.Or(subjectOf(in), openedSubject(out))
	}
	if r.Action == auth.Admin.String() {
		r.Subject = strings.TrimSpace(path.Base(procedure) + " " + r.Subject)
	}
	d.note(who, r)
}

// said is what a call that has succeeded says of what it has done, where its messages do
// not.
type said struct {
	idle    bool   // nothing
	subject string // "": what its messages say
}

func (c *caller) says() said {
	if c.control == nil {
		return said{}
	}
	return c.control.said
}

// idle reports whether the answer of a call that succeeded says that it has done nothing.
func idle(out any) bool {
	switch m := out.(type) {
	case *pb.ClaimResponse:
		return !m.GetGranted() && !m.GetQueued()
	case *pb.ReleaseResponse:
		return !m.GetReleased()
	case *pb.DefineSchemaResponse:
		return !m.GetChanged()
	}
	return false
}

// openedSubject is the session that was opened under an id of the server's choice.
func openedSubject(out any) string {
	if m, ok := out.(*pb.OpenSessionResponse); ok && m.GetSession().GetId() != "" {
		return "session " + m.GetSession().GetId()
	}
	return ""
}

// itemised reports whether the steps of a call are handed on one by one.
func itemised(procedure string) bool {
	return procedure == incumbentv1connect.LeaseServiceBatchProcedure || procedure == incumbentv1connect.LeaseServiceExtendProcedure
}

// onlyReads reports whether a call changes nothing, so that it is of interest only
// if it is denied.
func onlyReads(procedure string) bool {
	c, ok := calls.Of(procedure)
	if !ok {
		return false
	}
	switch c.Row().Judged {
	case calls.Everyone:
		return true
	case calls.First, calls.Named:
		if _, verb := c.Action().Needs(); verb == auth.See || verb == auth.Follow {
			return true
		}
	}
	switch base := path.Base(procedure); base {
	case "Settings", "SettingsHistory", "StateHash":
		return true
	default:
		return strings.HasPrefix(base, "Get") || strings.HasPrefix(base, "List") || strings.HasPrefix(base, "Test")
	}
}

// actionOfCall is the word for what a call does.
func actionOfCall(procedure string) string {
	c, ok := calls.Of(procedure)
	switch {
	case !ok:
		return path.Base(procedure)
	case c.Row().Judged == calls.First, c.Row().Judged == calls.Named:
		return c.Action().String()
	case c == calls.Txn:
		return auth.KeyWrite.String()
	}
	return path.Base(procedure)
}

// subjectOf is what a message is about, as far as it names something.
func subjectOf(in any) string {
	switch m := in.(type) {
	case interface{ GetName() *pb.LeaseName }:
		name := inScope(m.GetName())
		name.Lease = m.GetName().GetName()
		return name.String()
	case interface {
		GetNamespace() string
		GetKey() string
	}:
		return subjectIn(m.GetNamespace(), m.GetKey())
	case interface {
		GetNamespace() string
		GetPrefix() string
	}:
		return subjectIn(m.GetNamespace(), m.GetPrefix())
	case *pb.TxnRequest:
		return txnSubject(m)
	case *pb.RegisterRequest:
		return subjectIn(m.GetNamespace(), cmp.Or(m.GetNodeName(), m.GetNode().GetName()))
	case interface {
		GetNamespace() string
		GetNode() string
	}:
		return subjectIn(m.GetNamespace(), m.GetNode())
	case interface {
		GetNamespace() string
		GetService() string
	}:
		return subjectIn(m.GetNamespace(), m.GetService())
	case *pb.DefineSchemaRequest:
		return subjectIn(m.GetNamespace(), schemaName(m.GetSchema()))
	case *pb.LoadRequest:
		return subjectIn(m.GetNamespace(), cmp.Or(m.GetDatabase(), schemaName(m.GetBegin().GetSchema())))
	case interface {
		GetNamespace() string
		GetDatabase() string
	}:
		return subjectIn(m.GetNamespace(), m.GetDatabase())
	case *pb.RotateRequest:
		return strings.ToLower(strings.TrimPrefix(m.GetWhat().String(), "ROTATION_"))
	case *pb.RevokeTokenRequest:
		return m.GetId()
	case interface{ GetName() string }:
		return m.GetName()
	case interface{ GetMember() string }:
		return m.GetMember()
	case *pb.CreateCredentialRequest:
		if p := m.GetPassword(); p != nil {
			return auth.Principal{Kind: auth.Agent, Name: p.GetTag()}.String() + " " + p.GetModel()
		}
		return m.GetPrincipal()
	case interface{ GetPrincipal() string }: // for whom a certificate is
		return m.GetPrincipal()
	case *pb.RevokeCredentialRequest:
		return revokedSubject(m)
	case *pb.SetPolicyRequest:
		return m.GetPolicy().GetName()
	}
	if id := sessionIn(in); !id.IsZero() {
		return audit.Session(id)
	}
	return ""
}

// schemaName is the name of the database that a schema is of; "": it has none.
func schemaName(schema string) string {
	if schema == "" {
		return ""
	}
	var of struct{ Name string }
	if json.Unmarshal([]byte(schema), &of) != nil {
		return "" // it is refused as what it is
	}
	return of.Name
}

// detailOf is what an operator needs besides of what a message is about.
func detailOf(in any) string {
	switch m := in.(type) {
	case interface{ GetHolder() string }:
		return holderDetail(m.GetHolder())
	case *pb.JoinRequest:
		detail := "id " + m.GetMemberId()
		if token, err := ca.ParseToken(m.GetToken()); err == nil {
			detail += fmt.Sprintf(", token %x", token.ID)
		}
		return detail
	case *pb.RegisterRequest:
		var names audit.Names
		if s := m.GetService(); s != nil {
			names.Add("service " + cmp.Or(s.GetId(), s.GetName()))
		}
		for _, c := range m.GetChecks() {
			names.Add("check " + cmp.Or(c.GetId(), c.GetName()))
		}
		return names.String()
	case *pb.DeregisterRequest:
		switch {
		case m.GetServiceId() != "":
			return "service " + m.GetServiceId()
		case m.GetCheckId() != "":
			return "check " + m.GetCheckId()
		}
	case *pb.UpdateCheckRequest:
		return "check " + m.GetCheckId()
	}
	return ""
}

// revokedSubject is what is taken back.
func revokedSubject(m *pb.RevokeCredentialRequest) string {
	c := m.GetCertificate()
	if c == nil {
		return "credential " + strconv.FormatUint(m.GetId(), 10)
	}
	return strings.TrimSpace("certificate " + c.GetSerial() + " " + c.GetPrincipal())
}

// sessionIn is the session that a message names, zero if none.
func sessionIn(in any) incumbent.SessionID {
	text := ""
	switch m := in.(type) {
	case interface{ GetSession() string }:
		text = m.GetSession()
	case *pb.OpenSessionRequest:
		text = m.GetId()
	case *pb.CloseSessionRequest:
		text = m.GetId()
	case *pb.GetSessionRequest:
		text = m.GetId()
	}
	id, err := incumbent.ParseSessionID(text)
	if err != nil {
		return incumbent.SessionID{}
	}
	return id
}
