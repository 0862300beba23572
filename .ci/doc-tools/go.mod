module rulefleet.io/ci/doc-tools

go 1.26.3
