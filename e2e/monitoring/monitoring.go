// Package monitoring pins the module whose CustomResourceDefinitions tests and
// the demo install: e2e/controlplane/build.sh copies them from it. It is a module
// of its own, so that prometheus-operator's dependencies stay out of the
// operator's.
package monitoring

// A small package of the module keeps the requirement in go.mod.
import _ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
