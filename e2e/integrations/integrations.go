// Package integrations tests how other projects read Rulefleet's objects: Argo CD and kstatus their statuses,
// Grafana the dashboard. It is a separate module, to keep those projects' libraries out of the manager's
// dependencies.
package integrations
