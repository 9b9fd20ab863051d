package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

// Who is shown the log sees what it asked for, of all loggers that come of it; the log
// itself stays as it is.
func TestMonitorsAreShownTheLog(t *testing.T) {
	var own, text, asJSON bytes.Buffer
	var all monitors
	log := all.logger(slog.New(slog.NewTextHandler(&own, &slog.HandlerOptions{Level: slog.LevelWarn})))
	log.Info("before")
	stopText := all.add(slog.LevelDebug, false, func(b []byte) { text.Write(b) })
	stopJSON := all.add(slog.LevelWarn, true, func(b []byte) { asJSON.Write(b) })
	derived := log.With("member", "n1").WithGroup("raft")
	derived.Debug("quiet", "term", 3)
	derived.Warn("loud", "term", 4)
	stopText()
	stopJSON()
	log.Warn("after")
	if got := own.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "msg=loud member=n1 raft.term=4") || !strings.Contains(got, "msg=after") {
		t.Errorf("the log: %s", got)
	}
	if got := text.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "level=DEBUG msg=quiet member=n1 raft.term=3\n") || !strings.Contains(got, "raft.term=4") {
		t.Errorf("as text: %s", got)
	}
	var line struct {
		Msg, Member string
		Raft        struct{ Term int }
	}
	if err := json.Unmarshal(asJSON.Bytes(), &line); err != nil || line.Msg != "loud" || line.Member != "n1" || line.Raft.Term != 4 {
		t.Errorf("as JSON: %v %s", err, asJSON.String())
	}
	if log.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("it still looks for whoever has stopped")
	}
}
