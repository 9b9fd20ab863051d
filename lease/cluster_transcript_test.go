package lease

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestClusterTranscripts plays the files of testdata/cluster: three members, of
// which the first one leads at the beginning. A line is a step:
//
//	N STEP                 what a door of member N asks: as in TestTranscripts
//	auto | manual          whether all that waits passes at once
//	packets                the frames under way, which deliver, lose and twice number from 0
//	deliver [I] | lose [I] | twice [I] | full (on or off: no frame is taken)
//	append N | apply N | confirm N | pass N | settle
//	depose | win N (an election) | begin N (to lead) | elect N (both) | tell N (who leads) | lead N (all of it) | advance D | stats N
func TestClusterTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/cluster", func(t *testing.T, path string) {
		p := &clusterPlayer{cluster: newCluster(t, Config{}, 3)}
		for _, m := range p.members {
			p.doors = append(p.doors, &player{&world{t: t, e: m.e, via: m}})
		}
		p.lead(1)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p.t = t
			for _, w := range p.doors {
				w.t = t
			}
			for line := range strings.Lines(d.Input) {
				p.play(strings.Fields(line))
			}
			out := strings.Join(p.said, "\n")
			p.said = nil
			if out == "" {
				return "ok\n"
			}
			return out + "\n"
		})
	})
}

type clusterPlayer struct {
	*cluster
	doors []*player
}

func (c *cluster) sayf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if c.now != c.saidAt {
		line = fmt.Sprintf("[%v] %s", time.Duration(c.now), line)
		c.saidAt = c.now
	}
	c.said = append(c.said, line)
}

func (p *clusterPlayer) play(f []string) {
	p.t.Helper()
	if len(f) == 0 {
		return
	}
	if n, err := strconv.Atoi(f[0]); err == nil {
		door := p.doors[n-1]
		line := strings.Join(f[1:], " ")
		for _, m := range p.doors { // @NAME: the newest token that any member knows
			if t := m.tokens(line); t > line || !strings.Contains(t, "@") {
				line = t
			}
		}
		door.world.now = p.now
		door.play(strings.Fields(line))
		return
	}
	n := 0
	if len(f) > 1 {
		n, _ = strconv.Atoi(f[1])
	}
	switch f[0] {
	case "auto", "manual":
		if p.auto = f[0] == "auto"; p.auto {
			p.settle()
		}
	case "settle":
		p.settle()
	case "depose":
		p.depose()
	case "elect":
		p.elect(uint64(n))
	case "win":
		p.win(uint64(n))
	case "begin":
		p.begin(uint64(n))
	case "tell":
		p.tell(uint64(n))
	case "lead":
		p.lead(uint64(n))
	case "advance":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			p.t.Fatal(err)
		}
		p.advance(d)
	default:
		p.network(f[0], n)
	}
}

func (p *clusterPlayer) network(what string, n int) {
	p.t.Helper()
	switch what {
	case "full":
		p.full = !p.full
	case "packets":
		p.show()
	case "deliver":
		p.deliver(n)
	case "lose":
		p.packets = slices.Delete(p.packets, n, n+1)
	case "twice":
		p.packets = append(p.packets, p.packets[n])
	case "append":
		p.at(uint64(n)).appendAll()
	case "apply":
		p.at(uint64(n)).applyOne()
	case "confirm":
		p.at(uint64(n)).confirm()
	case "pass":
		p.at(uint64(n)).barrier()
	case "stats":
		s := p.at(uint64(n)).e.Stats()
		p.sayf("%d: %d forwarded, %d frames sent, %d again, %d served, %d refused, %d attached, %d held", n,
			s.Forwarded, s.FramesSent, s.Resent, s.FramesServed, s.FramesRefused, s.Attached, s.Held)
	default:
		p.t.Fatalf("no such step: %s", what)
	}
}

// show shows what is under way.
func (p *clusterPlayer) show() {
	for _, x := range p.packets {
		var f frame
		if !f.decode(x.data) {
			p.t.Fatalf("a frame that cannot be read: %x", x.data)
		}
		what := ""
		switch f.kind {
		case askFrame:
			what = fmt.Sprintf("ask of term %d: %d items, %d looks, %d announced, %d detached", f.term, len(f.items), len(f.looks), len(f.announced), len(f.detached))
		case answerFrame:
			what = fmt.Sprintf("answer of term %d: %d items, %d looks", f.term, len(f.answers), len(f.looked))
		case refuseFrame:
			what = fmt.Sprintf("refuse of term %d, leader %d", f.term, f.extra)
		case lostFrame:
			what = fmt.Sprintf("lost of term %d: %s", f.term, short(f.lost[0].session))
		}
		p.sayf("%d>%d %s, %d bytes", x.from, x.to, what, len(x.data))
	}
}
