//go:build unix && !linux

package controlplane

import (
	"syscall"
	"time"
)

// childAttributes puts the child into a process group of its own. There is no
// parent-death signal; the lifeline ends the child after the death of its parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped returns at once: there is no portable way to see a child stopped
// without reaping it.
func (p *Process) awaitStopped() error { return nil }

func setTimerSlack(time.Duration) {}
