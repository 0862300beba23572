//go:build !race

package rule

// raceDetector tells that the tests run slowly.
const raceDetector = false
