module github.com/rulefleet/rulefleet/e2e/certmanager

go 1.26.0

require github.com/cert-manager/cert-manager v1.21.2
