// Rulefleet-manager is the hub operator: it manages the Prometheus alert rules of a
// fleet of Kubernetes clusters. run.go shows its structure.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

// version is set by the linker.
var version = "dev"

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "rulefleet-manager:", err)
		os.Exit(2)
	case o.version:
		fmt.Println("rulefleet-manager", version)
		return
	}
	collectOften()
	leaveHeadroom()
	act := run
	if o.releaseSpokes {
		act = releaseSpokes
	}
	ctx := ctrl.SetupSignalHandler()
	go releaseMemory(ctx)
	if err := act(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "rulefleet-manager:", err)
		os.Exit(1)
	}
}
