package apiconventions_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
	"rulefleet.io/ci/tools/lint/apiconventions"
)

func TestAnalyzer(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), apiconventions.Analyzer, "api")
}
