package rule

import (
	_ "github.com/prometheus/common/model"
	_ "github.com/prometheus/prometheus/promql/promqltest"
	_ "sigs.k8s.io/yaml"
)
