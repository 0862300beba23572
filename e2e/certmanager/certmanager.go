// Package certmanager pins the module of cert-manager. The chart's test installs its
// CustomResourceDefinitions, so that an API server validates the chart's objects for cert-manager. It is a
// separate module, to keep cert-manager's dependencies out of the operator's.
package certmanager

// A small package of the module keeps the requirement in go.mod.
import _ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
