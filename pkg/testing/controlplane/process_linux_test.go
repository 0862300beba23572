package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A lifeline works only while nobody but the parent holds its write end.
func TestLifelinesAreNotInherited(t *testing.T) {
	c := start(t, Options{ControllerManager: true})
	processes := []*Process{c.etcd, c.apiServer, c.controllerManager}
	for _, p := range processes {
		own, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", p.lifeline.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		for _, holder := range processes {
			want := 0
			if holder == p {
				want = 1 // The read end.
			}
			if got := holds(t, holder.Pid(), own); len(got) != want || want == 1 && got[0] != "3" {
				t.Errorf("%s holds the lifeline of %s as descriptors %v", holder.name, p.name, got)
			}
		}
	}
}

func holds(t *testing.T, pid int, target string) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		if link, err := os.Readlink(filepath.Join(dir, entry.Name())); err == nil && link == target {
			found = append(found, entry.Name())
		}
	}
	return found
}

// The kernel's parent-death signal comes when a thread ends. It must not be that
// of the caller, which may be short-lived.
func TestChildOutlivesTheThreadOfItsStarter(t *testing.T) {
	type started struct {
		p      *Process
		err    error
		thread int
	}
	result := make(chan started)
	var starter func()
	starter = func() {
		// A goroutine that ends while it is locked takes its thread along,
		// unless that is the main one; holding on to it, try another.
		runtime.LockOSThread()
		if syscall.Gettid() == syscall.Getpid() {
			go starter()
			<-t.Context().Done()
			return
		}
		p, err := StartProcess(t.Context(), ProcessOptions{Path: "/bin/sh", Args: []string{"-c", "exec sleep 60"}})
		result <- started{p, err, syscall.Gettid()}
	}
	go starter()
	s := <-result
	if s.err != nil {
		t.Fatal(s.err)
	}
	eventually(t, "the thread has ended", testTimeout, func(context.Context) error {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", s.thread)); err == nil {
			return errors.New("it is there")
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the child ended with the thread: %v", err)
	}
	if err := s.p.Kill(); err != nil {
		t.Error(err)
	}
}

// A program that knows of no lifeline is ended by the kernel alone.
func TestKernelEndsChildrenWithoutLifeline(t *testing.T) {
	helper, pids := startHelper(t, modePlain)
	crash(t, helper)
	awaitGone(t, pids)
}
