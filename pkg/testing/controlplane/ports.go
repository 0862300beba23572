package controlplane

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Free ports are drawn from below the ephemeral ranges of Linux and macOS:
// otherwise an outgoing connection could take the port of an API server that is
// being restarted.
const (
	lowestPort   = 16384
	highestPort  = 32767
	portAttempts = 100
	loopback     = "127.0.0.1"
)

// ports are those in use by what this process has started, up or down.
var ports = struct {
	sync.Mutex
	taken map[int]bool
}{taken: map[int]bool{}}

// TakePort reserves, within this process, a port that is free now at an address of
// this machine. Another process may still take it before it is bound.
func TakePort(host string) (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range portAttempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if ports.taken[port] || !bindable(host, port) {
			continue
		}
		ports.taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port found in %d attempts", portAttempts)
}

// ReleasePort gives back what TakePort has reserved.
func ReleasePort(port int) {
	ports.Lock()
	defer ports.Unlock()
	delete(ports.taken, port)
}

func bindable(host string, port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
