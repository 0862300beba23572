// Package monitoring pins the module of prometheus-operator, from which e2e/controlplane/build.sh copies the
// CustomResourceDefinitions for tests and the demo. It is a separate module, to keep prometheus-operator's
// dependencies out of the operator's.
package monitoring

// A small package of the module keeps the requirement in go.mod.
import _ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
