//go:build race

package model

// usual is how many schedules run for each seed. The race detector can find nothing in code that runs in one goroutine
// at a time, so most schedules run without it.
const usual = 10
