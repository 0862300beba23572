// Etcd is etcd, which ends with the process that started it.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/rulefleet/rulefleet/e2e/controlplane/lifeline"
)

func main() {
	lifeline.Follow()
	etcdmain.Main(os.Args)
}
