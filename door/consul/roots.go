package consul

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// There is no mesh here, but harnesses wait until its authority shows a root. They are
// shown one that follows from the cluster's id, the same on every member. Nobody keeps
// its key, and nothing is ever signed by it.

func rootsRoutes() []route {
	return []route{
		{"/v1/agent/connect/ca/roots", methods{"GET": connectRoots}},
		{"/v1/connect/ca/roots", methods{"GET": connectRoots}},
	}
}

// rootLifetime is longer than anybody looks at it.
const rootLifetime = 100 * 365 * 24 * time.Hour

type rootJSON struct {
	ID                  string
	Name                string
	SerialNumber        uint64
	SigningKeyID        string
	ExternalTrustDomain string
	NotBefore           time.Time
	NotAfter            time.Time
	RootCert            string
	IntermediateCerts   []string
	Active              bool
	PrivateKeyType      string
	PrivateKeyBits      int
	CreateIndex         uint64
	ModifyIndex         uint64
}

// makeRoot makes the root of a cluster.
func makeRoot(cluster [16]byte) (rootJSON, error) {
	seed := sha256.Sum256(append([]byte("incumbent consul root "), cluster[:]...))
	key := ed25519.NewKeyFromSeed(seed[:])
	id := incumbent.SessionID(cluster).String()
	begin := time.Unix(0, 0).UTC()
	public, _ := key.Public().(ed25519.PublicKey) // always one
	keyID := sha256.Sum256(public)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "incumbent " + id}, NotBefore: begin, NotAfter: begin.Add(rootLifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: keyID[:20],
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return rootJSON{}, incumbent.Errorf(incumbent.Internal, "certificate of the consul door: %w", err)
	}
	sum := sha256.Sum256(der)
	return rootJSON{
		ID: colons(sum[:20]), Name: "incumbent", SerialNumber: 1, SigningKeyID: colons(keyID[:20]), ExternalTrustDomain: id,
		NotBefore: begin, NotAfter: template.NotAfter, RootCert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Active: true, PrivateKeyType: "ed25519", PrivateKeyBits: 256, CreateIndex: 1, ModifyIndex: 1,
	}, nil
}

func colons(b []byte) string {
	var parts []string
	for _, x := range b {
		parts = append(parts, hex.EncodeToString([]byte{x}))
	}
	return strings.Join(parts, ":")
}

func connectRoots(d *Door, r *request) {
	root, err := d.root()
	if err != nil {
		r.failFor(err)
		return
	}
	r.opts.cached = strings.HasPrefix(r.path, "/v1/agent/") // an agent has them at hand
	r.fixed(struct {
		ActiveRootID string
		TrustDomain  string
		Roots        []rootJSON
	}{root.ID, root.ExternalTrustDomain + ".consul", []rootJSON{root}})
}

// fixed answers with what never changes: who waits for a change waits until its time is
// over.
func (r *request) fixed(v any) {
	r.shared(sharedQuery{kind: "fixed", params: r.path, eval: fixedResult(v)})
}

// coordinateRoutes are of a network whose distances nobody measures.
func coordinateRoutes() []route {
	return []route{
		{"/v1/coordinate/datacenters", methods{"GET": func(_ *Door, r *request) { r.json(http.StatusOK, []any{}) }}},
		{"/v1/coordinate/nodes", methods{"GET": func(_ *Door, r *request) { r.fixed([]any{}) }}},
		{"/v1/coordinate/node/", methods{"GET": func(_ *Door, r *request) { r.bytes(http.StatusNotFound, "", nil) }}},
		{"/v1/coordinate/update", methods{"PUT": coordinateUpdate}},
	}
}

// coordinateUpdate takes what nobody uses.
func coordinateUpdate(_ *Door, r *request) {
	var in struct{ Node string }
	if !r.decode(&in) {
		return
	}
	r.ok()
}
