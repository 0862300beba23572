//go:build race

package model

// usual is how many schedules run for each seed. One goroutine runs at a time, so the race detector rarely finds
// anything, and most schedules run without it.
const usual = 10
