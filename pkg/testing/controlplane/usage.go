package controlplane

import (
	"fmt"
	"sync"
	"time"
)

// Usage adds up what processes take. The zero value is ready to use, and a process without one is not
// counted. Its methods are safe for concurrent use.
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

// String tells how many processes were started, and how much CPU time those took that have ended.
func (u *Usage) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return fmt.Sprintf("%d processes took %.1f s of CPU", u.started, u.cpu.Seconds())
}
