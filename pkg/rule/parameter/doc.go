// Package parameter parses the values of a template's parameters. They can come from annotations in a spoke, so
// they are not trusted: a value is typed and bounded, and is written into an expression as a number or a duration.
package parameter
