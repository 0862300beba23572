package main

import (
	_ "github.com/go-logr/zapr"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/client/versioned"
	_ "go.uber.org/zap"
	_ "sigs.k8s.io/multicluster-runtime/pkg/builder"
	_ "sigs.k8s.io/multicluster-runtime/pkg/manager"
)

func main() {}
