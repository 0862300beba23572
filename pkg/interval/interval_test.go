package interval

import (
	"fmt"
	"testing"
	"time"
)

func TestScale(t *testing.T) {
	for scale, want := range map[Scale]time.Duration{0: 30 * time.Second, 1: 30 * time.Second, 0.2: 6 * time.Second, 2: time.Minute} {
		t.Run(fmt.Sprint(scale), func(t *testing.T) {
			if got := scale.Of(30 * time.Second); got != want {
				t.Errorf("30 s at a scale of %v is %v, want %v", scale, got, want)
			}
		})
	}
}

func TestSoonest(t *testing.T) {
	if Soonest() != 0 || Soonest(0, 0) != 0 || Soonest(0, 2, 3) != 2 || Soonest(3, 2) != 2 {
		t.Error("it is another")
	}
}
