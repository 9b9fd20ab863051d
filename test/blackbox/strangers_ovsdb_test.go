package blackbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// ovsdbAuthority signs certificates of clients of Open vSwitch's databases.
type ovsdbAuthority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newOVSDBAuthority(t *testing.T, dir string) *ovsdbAuthority {
	t.Helper()
	a := &ovsdbAuthority{t: t, file: filepath.Join(dir, "ovsdb-ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "switches"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	der, a.key = a.sign(template, nil, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writeFile(t, a.file, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return a
}

// sign signs with a key, that of the certificate itself if it is nil.
func (a *ovsdbAuthority) sign(template, by *x509.Certificate, with *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by, with = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), with)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// client is a certificate by which its owner is agent:NAME.
func (a *ovsdbAuthority) client(name string) tls.Certificate {
	a.t.Helper()
	der, key := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// chassis is a client of Open vSwitch's databases.
type chassis struct {
	t    *testing.T
	conn *tls.Conn
	in   *json.Decoder
}

func newChassis(t *testing.T, address string, certificates ...tls.Certificate) *chassis {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: certificates})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &chassis{t, conn, json.NewDecoder(conn)}
}

// ask makes a request and returns its result, or why there is none.
func (c *chassis) ask(method, params string) (string, error) {
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.conn, `{"id":1,"method":"`+method+`","params":`+params+`}`); err != nil {
		return "", err
	}
	for {
		var m struct{ ID, Result json.RawMessage }
		if err := c.in.Decode(&m); err != nil {
			return "", err
		}
		if string(m.ID) == "1" { // else it is asked for an echo itself
			return string(m.Result), nil
		}
		if _, err := io.WriteString(c.conn, `{"id":"echo","result":[],"error":null}`); err != nil {
			return "", err
		}
	}
}

// Clients of Open vSwitch's databases come in, too, and stay, however many strangers are
// at their listener.
func TestG47_StrangersKeepNoSwitchOut(t *testing.T) {
	for name, tt := range map[string]struct {
		connections int
		says        string
		args        []string
	}{
		"silent":                {2000, "", nil},
		"half, listener of 300": {400, halfHello, []string{"--max-connections", "300"}},
		"no handshake":          {600, `{"id":1,"method":"echo","params":[]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir, address := t.TempDir(), freeAddress(t)
			a := newOVSDBAuthority(t, dir)
			cert, key := selfSigned(t, dir)
			g := startGuarded(t, append([]string{
				"--ovsdb-listen", address, "--ovsdb-cert", cert, "--ovsdb-key", key, "--ovsdb-ca", a.file, "--ovsdb-probe", "1h",
			}, tt.args...)...)
			old := newChassis(t, address, a.client("c0"))
			crowd(t, elsewhere, address, tt.connections, tt.says)
			for range 3 {
				if got, err := newChassis(t, address, a.client("c1")).ask("list_dbs", `[]`); err != nil || got != `["_Server"]` {
					t.Errorf("who comes: %s, %v", got, err)
				}
			}
			if got, err := old.ask("echo", `[1]`); err != nil || got != `[1]` {
				t.Errorf("who was there before: %s, %v", got, err)
			}
			if g.metric(t, "incumbent_strangers", `listener="ovsdb"`)+g.metric(t, "incumbent_strangers_closed_total", `listener="ovsdb"`)+g.metric(t, "incumbent_ovsdb_closed_total", `"no_tls"`) == 0 {
				t.Error("no stranger is counted")
			}
		})
	}
}

// Who shows nothing, where nobody has said whom that is, is sent away: it takes no
// place of those who have shown who they are, and is told nothing.
func TestG12_SwitchesThatShowNothingAreSentAway(t *testing.T) {
	address := freeAddress(t)
	g := startGuarded(t, "--ovsdb-listen", address)
	c := newChassis(t, address)
	if got, err := c.ask("list_dbs", `[]`); err == nil {
		t.Errorf("it is told %s", got)
	}
	if n := g.metric(t, "incumbent_denied_total", `door="ovsdb"`); n == 0 {
		t.Error("it is not counted")
	}
}

// A certificate of the authority of Open vSwitch's clients is taken back by its serial
// number like any other, though the cluster has not signed it.
func TestG12_ACertificateOfASwitchIsTakenBack(t *testing.T) {
	dir, address := t.TempDir(), freeAddress(t)
	a := newOVSDBAuthority(t, dir)
	cert, key := selfSigned(t, dir)
	g := startGuarded(t, "--ovsdb-listen", address, "--ovsdb-cert", cert, "--ovsdb-key", key, "--ovsdb-ca", a.file)
	certificate := a.client("c1")
	before := newChassis(t, address, certificate)
	if got, err := before.ask("list_dbs", `[]`); err != nil {
		t.Fatalf("before: %s, %v", got, err)
	}
	operator, err := client.New(client.Config{Servers: []string{g.url}, Credential: g.operator, TLS: anyTLS(), CallTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	which := &apiv1.RevokeCredentialRequest_Certificate{Certificate: &apiv1.RevokedCertificate{Serial: "02"}}
	if _, err := operator.RevokeCredential(t.Context(), &apiv1.RevokeCredentialRequest{Which: which}); err != nil {
		t.Fatal(err)
	}
	if got, err := newChassis(t, address, certificate).ask("list_dbs", `[]`); err == nil {
		t.Errorf("who comes with it is told %s", got)
	}
	eventually(t, patience, "who came with it is cut off", func() bool {
		_, err := before.ask("echo", `[1]`)
		return err != nil
	})
	if n := g.metric(t, "incumbent_denied_total", `door="ovsdb"`); n == 0 {
		t.Error("it is not counted")
	}
}

// A certificate of the authority of Open vSwitch's clients shows who somebody is at their
// door and at no other: there it could change what its role does not let it change here.
// Who may do nothing to a database is not told of it, here either.
func TestG12_CertificatesOfSwitchesAreGoodAtTheirDoorAlone(t *testing.T) {
	dir, address, consul := t.TempDir(), freeAddress(t), freeAddress(t)
	a := newOVSDBAuthority(t, dir)
	cert, key := selfSigned(t, dir)
	schema := filepath.Join(dir, "mini.ovsschema")
	writeFile(t, schema, `{"name":"Mini","version":"1.0.0","tables":{"P":{"columns":{"name":{"type":"string"}},"isRoot":true}}}`)
	g := startGuarded(t, "--ovsdb-listen", address, "--ovsdb-cert", cert, "--ovsdb-key", key, "--ovsdb-ca", a.file, "--ovsdb-schema", schema, "--consul-listen", consul)
	const rows = `["_Server",{"op":"select","table":"Database","where":[],"columns":["name"]}]`
	c := newChassis(t, address, a.client("c1"))
	if got, err := c.ask("transact", rows); err != nil || !strings.Contains(got, "Mini") {
		t.Fatalf("at its door: %s, %v", got, err)
	}
	elsewhere := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{a.client("c1")},
	}}}
	send := func(method, url, token, body string) (int, error) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := elsewhere.Do(r)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	for url, method := range map[string]string{g.url + "/incumbent.v1.TableService/Transact": http.MethodPost, "https://" + consul + "/v1/txn": http.MethodPut} {
		const insert = `{"database":"Mini","operations":"[{\"op\":\"insert\",\"table\":\"P\",\"row\":{}}]"}`
		// If there is an error it is not let in at all.
		if code, err := send(method, url, "", insert); err == nil && code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s: HTTP %d", url, code)
		}
	}
	const policy = `{"policy":{"name":"p","for":["agent:*"],"rules":[{"kind":"keys","namespace":"default","verbs":["see"]}]}}`
	if code, err := send(http.MethodPost, g.url+"/incumbent.v1.PolicyService/SetPolicy", g.operator, policy); err != nil || code != http.StatusOK {
		t.Fatalf("a policy: HTTP %d, %v", code, err)
	}
	if got, err := c.ask("transact", rows); err != nil || strings.Contains(got, "Mini") || !strings.Contains(got, "_Server") {
		t.Errorf("without a right: %s, %v", got, err)
	}
}
