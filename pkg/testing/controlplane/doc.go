// Package controlplane starts and stops real Kubernetes control planes as plain
// processes (etcd, kube-apiserver and, on request, kube-controller-manager), so
// that tests and the demo run against several real clusters without a container
// engine or a registry.
//
// `make controlplane` builds the programs.
//
// Nothing outlives the process that started it, not even when that process is
// killed by SIGKILL:
//
//   - every child holds the read end of a pipe (its lifeline) whose write end
//     only this process holds, and exits when the kernel closes it;
//   - on Linux every child is also killed by the kernel when this process ends,
//     which reaches a child that is stopped (SIGSTOP) and cannot read its pipe;
//   - every child is in a process group of its own, so Ctrl-C in a terminal
//     reaches this process alone, which can then stop its children in order. The
//     group is orphaned when this process ends, upon which POSIX has a stopped
//     child resumed, so that outside Linux it can follow its lifeline after all.
package controlplane
