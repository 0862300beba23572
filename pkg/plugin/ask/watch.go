package ask

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rulefleet/rulefleet/pkg/plugin/env"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
	"github.com/rulefleet/rulefleet/pkg/plugin/output"
)

// watching asks a question again and again.
type watching struct {
	on       bool
	interval time.Duration
}

func (w *watching) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&w.on, "watch", "w", false, "print the answer again whenever it changes, until you press Ctrl-C")
	cmd.Flags().DurationVar(&w.interval, "interval", 5*time.Second, "how often --watch asks the hub")
}

// clearScreen moves to the top of a terminal, and clears it.
const clearScreen = "\x1b[H\x1b[2J"

// run asks once or, with --watch, until ctx ends. What is printed for one answer appears together.
func (w *watching) run(ctx context.Context, e *env.Env, p *output.Printer, once func(context.Context) error) error {
	if !w.on {
		return once(ctx)
	}
	if w.interval <= 0 {
		return exit.New(exit.Usage, "", "--interval %v is too short; use a time above 0, such as 5s", w.interval)
	}
	out, errOut := p.Out, e.ErrOut
	defer func() { p.Out, e.ErrOut = out, errOut }()
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	var answer bytes.Buffer
	p.Out, e.ErrOut = &answer, &answer
	shown := ""
	for {
		answer.Reset()
		switch err := once(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil && shown == "":
			return err
		case err != nil: // the hub may be away for a moment
			answer.Reset()
			_, _ = fmt.Fprintln(&answer, "error:", output.Clean(err.Error()))
		}
		if text := answer.String(); text != shown {
			if err := show(out, text, shown != "", e.Screen); err != nil {
				return err
			}
			shown = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func show(out io.Writer, text string, again, screen bool) error {
	switch {
	case screen:
		text = clearScreen + text
	case again:
		text = "\n" + text
	}
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return nil
}
