// Package certmanager pins the module whose CustomResourceDefinitions the chart's test
// installs, to have an API server check what the chart makes for cert-manager. It is a
// module of its own, so that cert-manager's dependencies stay out of the operator's.
package certmanager

// A small package of the module keeps the requirement in go.mod.
import _ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
