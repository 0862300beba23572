//go:build race

package spoke

// raceDetector is true if the race detector slows the tests down.
const raceDetector = true
