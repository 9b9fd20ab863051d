package server

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/lease"
)

func TestConfigValidate(t *testing.T) {
	good := Config{DataDir: "x"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := (Config{Dev: true}).Validate(); err != nil {
		t.Errorf("--dev needs nothing else: %v", err)
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		word   string // of the error; empty: valid
	}{
		"no data directory":     {func(c *Config) { c.DataDir = "" }, "data-dir"},
		"long name":             {func(c *Config) { c.Name = strings.Repeat("n", 64) }, "name"},
		"longest name":          {func(c *Config) { c.Name = strings.Repeat("n", 63) }, ""},
		"name with a space":     {func(c *Config) { c.Name = "n 1" }, "name"},
		"no port":               {func(c *Config) { c.Listen = "127.0.0.1" }, "listen"},
		"a port that is none":   {func(c *Config) { c.Listen = "127.0.0.1:http" }, "listen"},
		"a port too high":       {func(c *Config) { c.Listen = "127.0.0.1:65536" }, "listen"},
		"a unix socket":         {func(c *Config) { c.Listen = "unix:/run/x" }, "listen"},
		"open to all":           {func(c *Config) { c.Listen = ":7600" }, "--tls-cert"},
		"segment too small":     {func(c *Config) { c.SegmentBytes = 1 << 20 }, "log-segment-bytes"},
		"segment too large":     {func(c *Config) { c.SegmentBytes = 1<<30 + 1 }, "log-segment-bytes"},
		"negative segment":      {func(c *Config) { c.SegmentBytes = -1 }, "log-segment-bytes"},
		"snapshot too small":    {func(c *Config) { c.SnapshotBytes = 1 }, "snapshot-bytes"},
		"reserve too small":     {func(c *Config) { c.DiskReserve = 1 }, "disk-reserve-bytes"},
		"history too small":     {func(c *Config) { c.HistoryBytes = 1 }, "history-bytes"},
		"memory too small":      {func(c *Config) { c.MemoryLimit = 1 << 20 }, "memory-limit"},
		"no connections":        {func(c *Config) { c.MaxConnections = -1 }, "max-connections"},
		"negative grace":        {func(c *Config) { c.Grace = -1 }, "grace"},
		"longest grace":         {func(c *Config) { c.Grace = lease.MaxGrace }, ""},
		"long grace":            {func(c *Config) { c.Grace = lease.MaxGrace + 1 }, "grace"},
		"negative return":       {func(c *Config) { c.ReturnTime = -time.Second }, "return-time"},
		"longest return":        {func(c *Config) { c.ReturnTime = lease.MaxReturn }, ""},
		"long return":           {func(c *Config) { c.ReturnTime = lease.MaxReturn + 1 }, "return-time"},
		"greatest drift":        {func(c *Config) { c.Drift = 0.1 }, ""},
		"great drift":           {func(c *Config) { c.Drift = 0.11 }, "drift"},
		"negative drift":        {func(c *Config) { c.Drift = -0.01 }, "drift"},
		"drift that is none":    {func(c *Config) { c.Drift = math.NaN() }, "drift"},
		"no grace":              {func(c *Config) { c.Grace, c.ReturnTime, c.Drift = Zero, Zero, ZeroDrift }, ""},
		"peers on loopback":     {func(c *Config) { c.PeerListen = "127.0.0.1:0" }, ""},
		"peers on no port":      {func(c *Config) { c.PeerListen = "127.0.0.1" }, "peer-listen"},
		"peers told of nobody":  {func(c *Config) { c.PeerAdvertise = "0.0.0.0:7601" }, "peer-advertise"},
		"a token that is none":  {func(c *Config) { c.JoinToken = "x" }, "join token"},
		"a learner of nothing":  {func(c *Config) { c.Learner = true }, "learner"},
		"a level nobody knows":  {func(c *Config) { c.LogLevel = "loud" }, "log-level"},
		"a level of the others": {func(c *Config) { c.LogLevel = "debug" }, ""},
	} {
		cfg := good
		tt.change(&cfg)
		err := cfg.Validate()
		switch {
		case tt.word == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.word != "" && (incumbent.KindOf(err) != incumbent.Invalid || !strings.Contains(err.Error(), tt.word)):
			t.Errorf("%s: %v, want Invalid naming %s", name, err, tt.word)
		}
		// What is valid here is valid where it goes.
		if err == nil {
			full := cfg.withDefaults()
			if err := full.leaseConfig(true).Validate(); err != nil {
				t.Errorf("%s: the lease loop says %v", name, err)
			}
		}
	}
}

func TestTimeline(t *testing.T) {
	now := time.Unix(100, 0)
	tl := newTimeline(func() time.Time { return now })
	_, _, more := tl.after(0, 10)
	for i := range timelineKept + 5 {
		tl.add(Event{What: "x", Index: uint64(i)})
	}
	select {
	case <-more:
	default:
		t.Error("who waited was not told")
	}
	got, next, _ := tl.after(0, 3)
	if len(got) != 3 || got[0].Index != 5 || next != 8 {
		t.Errorf("the oldest kept: %v, next %d", got, next)
	}
	if from := tl.last(2); from != timelineKept+3 {
		t.Errorf("the last two begin at %d", from)
	}
	// An avalanche is told of as a number.
	tl = newTimeline(func() time.Time { return now })
	for range lossesNoted + 50 {
		tl.lost("lease expired", incumbent.Name{Lease: "a"}, "h", 1, 0)
	}
	now = now.Add(time.Second)
	tl.lost("lease expired", incumbent.Name{Lease: "b"}, "h", 2, time.Millisecond)
	got, _, _ = tl.after(0, timelineKept)
	if len(got) != lossesNoted+2 || got[lossesNoted].Detail != "50 more losses in one second" || !strings.Contains(got[lossesNoted+1].Detail, "1ms after its deadline") {
		t.Errorf("%d events, the last are %v", len(got), got[len(got)-2:])
	}
}

func TestRates(t *testing.T) {
	var r rates
	begin := time.Unix(0, 0)
	if got := r.perSecond(1)[0]; got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	for i := range 30 {
		r.sample(begin.Add(time.Duration(i)*time.Second), []float64{float64(i * i)})
		if i == 0 {
			continue
		}
		from := max(0, i-rateWindow)
		want := float64(i*i-from*from) / float64(i-from)
		if got := r.perSecond(1)[0]; got != want {
			t.Errorf("after %d s: %v, want %v", i, got, want)
		}
	}
}
