package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Usage sums up the resources of processes. The zero value is ready to use; a nil one counts nothing. Its
// methods are safe for concurrent use.
type Usage struct {
	mu       sync.Mutex
	programs map[string]programUsage
}

// programUsage is the usage of a program.
type programUsage struct {
	started int
	cpu     time.Duration
}

// add counts processes of a program that started, and the CPU time of one that has ended.
func (u *Usage) add(program string, started int, cpu time.Duration) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.programs == nil {
		u.programs = map[string]programUsage{}
	}
	was := u.programs[program]
	u.programs[program] = programUsage{was.started + started, was.cpu + cpu}
}

// String returns the number of started processes, and the CPU time of those that have ended: in all, and of each program.
func (u *Usage) String() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all programUsage
	var each []string
	for _, program := range slices.Sorted(maps.Keys(u.programs)) {
		p := u.programs[program]
		all.started, all.cpu = all.started+p.started, all.cpu+p.cpu
		each = append(each, fmt.Sprintf("%s (%d) %.1f", program, p.started, p.cpu.Seconds()))
	}
	return fmt.Sprintf("%d processes took %.1f s of CPU: %s", all.started, all.cpu.Seconds(), strings.Join(each, ", "))
}
