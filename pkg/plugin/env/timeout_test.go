package env

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestTimeout(t *testing.T) {
	for _, tc := range []struct {
		value     string
		canBeZero bool
		want      time.Duration
		fails     bool
	}{
		{value: "90s", want: 90 * time.Second},
		{value: "0", fails: true},
		{value: "0s", canBeZero: true},
		{value: "-1s", fails: true},
		{value: "-1s", canBeZero: true, fails: true},
		{value: "10", canBeZero: true, fails: true},
	} {
		cmd, d := &cobra.Command{}, time.Duration(0)
		AddTimeout(cmd, &d, time.Minute, tc.canBeZero, "")
		if d != time.Minute {
			t.Errorf("the default is %v", d)
		}
		err := cmd.ParseFlags([]string{"--timeout", tc.value})
		if (err != nil) != tc.fails || err == nil && d != tc.want {
			t.Errorf("%s, if 0 is accepted %v: %v, %v", tc.value, tc.canBeZero, d, err)
		}
	}
}
