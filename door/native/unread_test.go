//go:build unix

package native

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/park"
)

// narrow lets the kernel take little of what is sent to conn and not read.
func narrow(tb testing.TB, conn net.Conn) {
	tb.Helper()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		tb.Fatal(err)
	}
}

// unreadCall opens a watch by a call and reads nothing of it.
func (m *member) unreadCall(after uint64) {
	m.tb.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(m.url, "http://"))
	if err != nil {
		m.tb.Fatal(err)
	}
	m.tb.Cleanup(func() { conn.Close() })
	narrow(m.tb, conn)
	body := marshal(m.tb, &pb.WatchRequest{Name: nameOf("p/"), Prefix: true, AfterIndex: after})
	envelope := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+proto\r\nContent-Length: %d\r\n\r\n%s",
		incumbentv1connect.LeaseServiceWatchProcedure, len(envelope), envelope)
	r := bufio.NewReaderSize(conn, 16)
	for line := "first"; line != ""; line = strings.TrimSpace(line) {
		if line, err = r.ReadString('\n'); err != nil {
			m.tb.Fatal(err)
		}
	}
	if _, err := io.ReadFull(r, make([]byte, 16)); err != nil { // the first message is being written
		m.tb.Fatal(err)
	}
}

// serveNarrowly has the member listen on another port, where the kernel takes
// little of what is sent and not read.
func (m *member) serveNarrowly() {
	m.tb.Helper()
	small := func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, 16<<10) })
		return errors.Join(controlErr, err)
	}
	ln, err := (&net.ListenConfig{Control: small}).Listen(m.tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		m.tb.Fatal(err)
	}
	m.url = "http://" + ln.Addr().String()
	s := &http.Server{Handler: m.door, ReadHeaderTimeout: patience}
	go func() { _ = s.Serve(park.Listen(ln, 0)) }()
	m.tb.Cleanup(func() { s.Close() })
}

// What 40 readers hold that do not read is a piece each, over both kinds of
// connections, whatever there would be to tell.
func TestG18_ReadersThatDoNotReadHoldAPieceEach(t *testing.T) {
	const readers, leases = 40, 1100
	m := newMember(t)
	m.door.SetLimits(Limits{WriteTimeout: time.Hour}) // who reads nothing stays until the end
	worker := m.hoard(leases)                         // whose answers all come at once
	m.serveNarrowly()
	before := m.hubIndex()
	end := worker.ok(closeSessionFrame(1<<20, sessionA)).GetOperation().GetCloseSession().Index
	quick := m.dial() // has the shared bytes made
	quick.send(watchFrameOf(1, "p/", before))
	for c := newCollector(t, before); c.progress < end; {
		c.take(quick.next().GetWatch())
	}
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	was := heap()
	for range readers / 2 {
		m.unreadCall(before)
		w := m.dial()
		narrow(t, w.conn)
		w.send(watchFrameOf(1, "p/", before))
	}
	for m.group.Hub().Stats().Readers < ownReaders+1+readers { // and the quick one
		runtime.Gosched()
	}
	quick.send(watchFrameOf(2, "p/", before)) // behind all others in the pumps' queue
	for c := newCollector(t, before); c.progress < end; {
		if f := quick.next(); f.Id == 2 {
			c.take(f.GetWatch())
		}
	}
	if each := (heap() - was) / readers; each > 2*pullBytes {
		t.Errorf("each holds %d bytes", each)
	} else {
		t.Logf("each holds %d bytes", each)
	}
}

// What a read that waits is answered with is counted until it has been read, as all answers are:
// each call has a copy of what they share.
func TestG39_AnswersToReadsThatWaitAreCounted(t *testing.T) {
	m := newMember(t)
	m.door.SetLimits(Limits{WriteTimeout: time.Hour})
	value := make([]byte, 400<<10)
	m.mustPut(&pb.PutRequest{Key: "a", Value: value})
	m.serveNarrowly()
	conn, err := net.Dial("tcp", strings.TrimPrefix(m.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	narrow(t, conn)
	body := marshal(t, &pb.GetKeyRequest{Key: "a", WaitMs: 1})
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/proto\r\nConnect-Protocol-Version: 1\r\nContent-Length: %d\r\n\r\n%s",
		incumbentv1connect.KeyValueServiceGetProcedure, len(body), body)
	eventually(t, "the answer is counted", func() bool { return m.door.UnsentBytes() >= int64(len(value)) })
	conn.Close()
	eventually(t, "it is not any more", func() bool { return m.door.UnsentBytes() == 0 })
}
