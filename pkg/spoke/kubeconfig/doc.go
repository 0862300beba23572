// Package kubeconfig makes a client configuration of a spoke's kubeconfig. A kubeconfig is untrusted input: it is
// parsed within bounds, fields that would run a program or send a file of the manager are refused, and so are
// addresses that only the manager can reach. A cluster administrator can allow some of that by an Allowance.
package kubeconfig
