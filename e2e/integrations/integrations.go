// Package integrations checks how other projects read what Rulefleet makes: Argo CD and kstatus
// the statuses of its objects, and Grafana the dashboard. It is a module of its own, so that
// those projects' libraries are not among the dependencies of the manager.
package integrations
