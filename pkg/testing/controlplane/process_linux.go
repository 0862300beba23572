package controlplane

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childAttributes puts the child into a process group of its own, and has the
// kernel kill it when its parent ends: a child that is stopped by SIGSTOP cannot
// follow its lifeline.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// setTimerSlack sets by how much Linux may delay timers of this thread and of the processes that it starts. 0 stands for the
// default, 50 µs. See PR_SET_TIMERSLACK(2const). It only saves CPU time, so a sandbox that refuses it is no reason to fail.
func setTimerSlack(slack time.Duration) {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0)
}

// Arguments of waitid(2) that package syscall does not name.
const (
	waitidByPid    = 1         // P_PID
	waitidStopped  = 2         // WSTOPPED
	waitidNoHang   = 1         // WNOHANG
	waitidNoReap   = 0x1000000 // WNOWAIT
	siginfoSize    = 128
	stoppedTimeout = 5 * time.Second
	stoppedPoll    = time.Millisecond
)

// awaitStopped returns when all threads of the child have stopped: SIGSTOP is
// asynchronous, and a request sent right after it could still be answered.
func (p *Process) awaitStopped() error {
	deadline := time.NewTimer(stoppedTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(stoppedPoll)
	defer poll.Stop()
	for {
		stopped, err := isStopped(p.Pid())
		if err != nil {
			return fmt.Errorf("pausing %s: %w", p.name, err)
		}
		if stopped {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("pausing %s: %w", p.name, os.ErrProcessDone)
		case <-deadline.C:
			return fmt.Errorf("pausing %s: not stopped after %s", p.name, stoppedTimeout)
		case <-poll.C:
		}
	}
}

// isStopped does not consume the state change (WNOWAIT), so that a second Pause sees it too, and does not reap
// an ended child, which os/exec does.
func isStopped(pid int) (bool, error) {
	// siginfo_t starts with si_signo, which waitid sets to SIGCHLD if there is a state change, and to 0
	// otherwise.
	var info [siginfoSize / 4]int32
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, waitidByPid, uintptr(pid),
		uintptr(unsafe.Pointer(&info)), waitidStopped|waitidNoHang|waitidNoReap, 0, 0)
	if errno != 0 && errno != syscall.EINTR {
		return false, errno
	}
	return errno == 0 && info[0] != 0, nil
}
