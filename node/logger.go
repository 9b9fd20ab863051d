package node

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLogger bridges what the raft library says to slog. The library reports
// each step of an election as information; to us that is detail, since the
// role's changes are events of their own.
type raftLogger struct{ log *slog.Logger }

func (l raftLogger) say(level slog.Level, text func() string) {
	if l.log.Enabled(context.Background(), level) {
		l.log.LogAttrs(context.Background(), level, "raft", slog.String("text", text()))
	}
}

func (l raftLogger) Debug(v ...any) {
	l.say(slog.LevelDebug-1, func() string { return fmt.Sprint(v...) })
}

func (l raftLogger) Debugf(f string, v ...any) {
	l.say(slog.LevelDebug-1, func() string { return fmt.Sprintf(f, v...) })
}

func (l raftLogger) Info(v ...any) {
	l.say(slog.LevelDebug, func() string { return fmt.Sprint(v...) })
}

func (l raftLogger) Infof(f string, v ...any) {
	l.say(slog.LevelDebug, func() string { return fmt.Sprintf(f, v...) })
}

func (l raftLogger) Warning(v ...any) {
	l.say(slog.LevelWarn, func() string { return fmt.Sprint(v...) })
}

func (l raftLogger) Warningf(f string, v ...any) {
	l.say(slog.LevelWarn, func() string { return fmt.Sprintf(f, v...) })
}

func (l raftLogger) Error(v ...any) {
	l.say(slog.LevelError, func() string { return fmt.Sprint(v...) })
}

func (l raftLogger) Errorf(f string, v ...any) {
	l.say(slog.LevelError, func() string { return fmt.Sprintf(f, v...) })
}

// The library calls these when one of its invariants is broken. The panic ends
// the loop, which stops the node with its text.
func (raftLogger) Fatal(v ...any)            { panic("raft: " + fmt.Sprint(v...)) }
func (raftLogger) Fatalf(f string, v ...any) { panic("raft: " + fmt.Sprintf(f, v...)) }
func (raftLogger) Panic(v ...any)            { panic("raft: " + fmt.Sprint(v...)) }
func (raftLogger) Panicf(f string, v ...any) { panic("raft: " + fmt.Sprintf(f, v...)) }
