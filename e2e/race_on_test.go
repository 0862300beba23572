//go:build race

package e2e

// raceFlags build the manager as this test was built.
var raceFlags = []string{"-race"}
