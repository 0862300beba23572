package controlplane

import (
	"fmt"
	"sync"
	"time"
)

// Usage sums up the resources of processes. The zero value is ready to use; a nil one counts nothing. Its
// methods are safe for concurrent use.
type Usage struct {
	mu      sync.Mutex
	started int
	cpu     time.Duration
}

func (u *Usage) starts() {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.started++
}

func (u *Usage) ends(cpu time.Duration) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cpu += cpu
}

// String returns the number of started processes, and the CPU time of those that have ended.
func (u *Usage) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return fmt.Sprintf("%d processes took %.1f s of CPU", u.started, u.cpu.Seconds())
}
