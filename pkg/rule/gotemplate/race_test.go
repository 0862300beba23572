//go:build race

package gotemplate

// raceDetector tells that the tests run slowly.
const raceDetector = true
