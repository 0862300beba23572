//go:build race

package spoke

// raceDetector tells that the tests run slowly.
const raceDetector = true
