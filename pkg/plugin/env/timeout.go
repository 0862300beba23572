package env

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// AddTimeout adds the flag --timeout to a command, with a default. A negative value is refused, and so is 0 unless the
// command can end without waiting.
func AddTimeout(cmd *cobra.Command, to *time.Duration, value time.Duration, canBeZero bool, usage string) {
	*to = value
	cmd.Flags().Var(&timeout{to, canBeZero}, "timeout", usage)
}

// timeout is the value of the flag.
type timeout struct {
	*time.Duration
	canBeZero bool
}

// Set implements pflag.Value.
func (t *timeout) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return err
	case d < 0 && t.canBeZero:
		return errors.New("it must not be negative")
	case d <= 0 && !t.canBeZero:
		return errors.New("it must be more than 0")
	}
	*t.Duration = d
	return nil
}

// Type implements pflag.Value.
func (t *timeout) Type() string { return "duration" }
