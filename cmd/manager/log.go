package main

import (
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/rulefleet/rulefleet/pkg/clip"
)

// maxLogged bounds each text of a log entry, in bytes. A spoke determines how long its refusals are.
const maxLogged = 4 << 10

// clipped is a core that shortens texts.
type clipped struct{ zapcore.Core }

// newClipped adds the sampling of zap's production configuration, which has to be around the core.
func newClipped(core zapcore.Core) zapcore.Core {
	s := zap.NewProductionConfig().Sampling
	return zapcore.NewSamplerWithOptions(clipped{core}, time.Second, s.Initial, s.Thereafter)
}

// With implements zapcore.Core.
func (c clipped) With(fields []zapcore.Field) zapcore.Core {
	return clipped{c.Core.With(shortened(fields))}
}

// Check implements zapcore.Core.
func (c clipped) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write implements zapcore.Core.
func (c clipped) Write(e zapcore.Entry, fields []zapcore.Field) error {
	e.Message = clip.Marked(e.Message, maxLogged)
	return c.Core.Write(e, shortened(fields)) //nolint:wrapcheck // a core is transparent
}

func shortened(fields []zapcore.Field) []zapcore.Field {
	out := slices.Clone(fields)
	for i := range out {
		switch f := &out[i]; f.Type {
		case zapcore.StringType:
			f.String = clip.Marked(f.String, maxLogged)
		case zapcore.ErrorType:
			if text := fmt.Sprint(f.Interface); len(text) > maxLogged {
				*f = zap.String(f.Key, clip.Marked(text, maxLogged))
			}
		}
	}
	return out
}
