package native

import (
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

// note hands a record of a caller on.
func (d *Door) note(who *caller, r audit.Record) {
	r.Door, r.Address, r.Principal = doorName, who.address, who.name()
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
		d.note(who, audit.Record{Action: a.String(), Subject: sessionSubject(id), Outcome: audit.Denied, Reason: d.reasonFor(who, id)})
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
	switch of := r.Record.(type) {
	case *kv.Entry:
		return of == nil || of.Modified == r.Index
	case int: // deleted
		return of > 0
	}
	return true
}

func (d *Door) noteOp(who *caller, o *operation, r audit.Record) {
	r.Action, r.Subject, r.Detail = o.action.String(), o.subject(), holderDetail(o.holder)
	d.note(who, r)
}

// subject is what a step is about.
func (o *operation) subject() string {
	switch {
	case o.name != incumbent.Name{}:
		return o.name.String()
	case !o.session.IsZero():
		return sessionSubject(o.session)
	case o.token != 0:
		return "token " + o.token.String()
	}
	return ""
}

func sessionSubject(id incumbent.SessionID) string { return "session " + id.String() }

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
	r := audit.Record{Action: actionOfCall(procedure), Subject: subjectOf(in)}
	switch m := in.(type) {
	case interface{ GetHolder() string }:
		r.Detail = holderDetail(m.GetHolder())
	case *pb.JoinRequest:
		r.Detail = "id " + m.GetMemberId()
		if token, err := ca.ParseToken(m.GetToken()); err == nil {
			r.Detail += fmt.Sprintf(", token %x", token.ID)
		}
	}
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
	case onlyReads(procedure), itemised(procedure), err == nil && idle(out):
		return
	case err != nil && r.Outcome != audit.Unknown:
		if _, joins := in.(*pb.JoinRequest); !joins && r.Action != auth.Admin.String() {
			return
		}
		r.Outcome, r.Detail = audit.Failed, strings.TrimPrefix(r.Detail+", "+connect.CodeOf(err).String(), ", ")
	}
	if i, ok := out.(interface{ GetIndex() uint64 }); ok && err == nil {
		r.Index = i.GetIndex()
	}
	if r.Action == auth.Admin.String() {
		r.Subject = strings.TrimSpace(path.Base(procedure) + " " + r.Subject)
	}
	d.note(who, r)
}

// idle reports whether a call that succeeded has done nothing.
func idle(out any) bool {
	switch m := out.(type) {
	case *pb.ClaimResponse:
		return !m.GetGranted() && !m.GetQueued()
	case *pb.ReleaseResponse:
		return !m.GetReleased()
	case *pb.DeleteResponse:
		return m.GetDeleted() == 0
	case interface {
		GetEntry() *pb.KeyValue
		GetIndex() uint64
	}:
		return m.GetEntry() != nil && m.GetEntry().GetModifiedIndex() != m.GetIndex()
	}
	return false
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
	if c.Row().Judged == calls.Everyone {
		return true
	}
	switch c.Action() {
	case auth.Read, auth.Watch, auth.SessionRead, auth.KeyRead, auth.KeyWatch, auth.Status, auth.Discover:
		return true
	}
	base := path.Base(procedure)
	return base == "Settings" || strings.HasPrefix(base, "Get") || strings.HasPrefix(base, "List") || strings.HasPrefix(base, "Test")
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
		k := keyIn(m.GetNamespace(), m.GetKey())
		return k.Namespace + ":" + k.Name
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
		return sessionSubject(id)
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
