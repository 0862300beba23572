// Package reasons is the table of all reasons that conditions, rows of a status and Events can have:
// where each one occurs, a typical message, its meaning, and what to do about it.
// docs/reference/reasons.md is generated from the table. classes has what each reason means for the program.
package reasons
