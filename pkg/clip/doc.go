// Package clip limits texts to a number of bytes.
package clip
