package rule

import (
	_ "github.com/prometheus/prometheus/model/rulefmt"
	_ "github.com/prometheus/prometheus/promql"
	_ "github.com/prometheus/prometheus/template"
	"testing"
)

func TestX(t *testing.T) {}
