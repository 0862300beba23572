// Package compat says which expressions, texts and fields a release of Prometheus can parse.
package compat
