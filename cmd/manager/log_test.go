package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// A spoke can't fill the log with one long refusal.
func TestLogIsClipped(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	log := zapr.NewLogger(zap.New(newClipped(core)))
	long, short := strings.Repeat("x", 256<<10), "the spoke refuses"
	log.WithValues("with", long).Error(errors.New(long), long, "value", long, "number", 7)
	log.WithValues("with", short).Error(errors.New(short), short, "value", short, "number", 7)
	log.V(1).Info("not enabled")
	entries := logs.All()
	if len(entries) != 2 {
		t.Fatalf("got %d entries", len(entries))
	}
	for i, want := range []string{long[:maxLogged-len("…")] + "…", short} {
		e := entries[i]
		fields := e.ContextMap()
		if e.Message != want || fields["with"] != want || fields["error"] != want || fields["value"] != want || fields["number"] != int64(7) {
			t.Errorf("entry %d: %.200v", i, fields)
		}
	}
}
