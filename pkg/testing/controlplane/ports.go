package controlplane

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"syscall"
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

// ports are those in use by what this process has started, up or down. On Linux, each value is a
// listener that reserves the port among all processes.
var ports = struct {
	sync.Mutex
	taken map[int]io.Closer
}{taken: map[int]io.Closer{}}

// TakePort reserves a port that is free now at an address of this machine. On Linux, no other process that calls
// TakePort gets it until ReleasePort or the end of this process; another program may still bind it.
func TakePort(host string) (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range portAttempts {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if ports.taken[port] != nil {
			continue
		}
		reservation, err := reserve(port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if !bindable(host, port) {
			_ = reservation.Close()
			continue
		}
		ports.taken[port] = reservation
		return port, nil
	}
	return 0, fmt.Errorf("no free port found in %d attempts", portAttempts)
}

// reserve listens at an abstract Unix socket, which leaves no file behind. Other systems have none, so
// nothing is reserved there.
func reserve(port int) (io.Closer, error) {
	if runtime.GOOS != "linux" {
		return io.NopCloser(nil), nil
	}
	l, err := net.Listen("unix", fmt.Sprintf("@rulefleet-port-%d", port))
	if err != nil {
		return nil, fmt.Errorf("reserving port %d: %w", port, err)
	}
	return l, nil
}

// ReleasePort gives back what TakePort has reserved.
func ReleasePort(port int) {
	ports.Lock()
	defer ports.Unlock()
	if reservation := ports.taken[port]; reservation != nil {
		_ = reservation.Close()
	}
	delete(ports.taken, port)
}

func bindable(host string, port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
