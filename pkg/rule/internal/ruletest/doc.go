// Package ruletest has objects, random texts and golden files for the tests of pkg/rule and its subpackages.
// It imports none of them, so that all of them can use it.
package ruletest
