//go:build !race

package model

// usual is how many schedules run for each seed.
const usual = 100
