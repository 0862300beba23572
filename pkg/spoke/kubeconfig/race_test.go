//go:build race

package kubeconfig

// raceDetector is true if the race detector slows the tests down.
const raceDetector = true
