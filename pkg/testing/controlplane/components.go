package controlplane

import (
	"path/filepath"
	"strconv"
	"strings"
)

// serviceIP is the address of the Service default/kubernetes: the first of
// serviceRange.
const (
	serviceRange = "10.0.0.0/24"
	serviceIP    = "10.0.0.1"
)

// Names in the work folder.
const (
	dataDir           = "etcd"
	backupDir         = "backup"
	pkiDir            = "pki"
	logsDir           = "logs"
	cacheDir          = "cache"
	kubeconfigFile    = "kubeconfig"
	controllerFile    = "controller-manager.kubeconfig"
	lockName          = "lock"
	auditLogFile      = "audit.log"
	auditPolicyFile   = "audit-policy.json"
	etcdSocket        = "etcd.sock"
	etcdPeerSocket    = "peer.sock"
	caFile            = "ca.crt"
	servingCertFile   = "apiserver.crt"
	servingKeyFile    = "apiserver.key"
	serviceAccountKey = "service-account.key"
)

// auditPolicy logs the user and the time of each request and its answer.
const auditPolicy = `{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [{"level": "Metadata"}]
}
`

// idleControllers have nothing to do in a cluster without nodes, volumes and a cloud. They include those of
// endpoints, so that a test can set the target of a Service.
var idleControllers = []string{
	"cloud-node-lifecycle-controller",
	"device-taint-eviction-controller",
	"endpoints-controller",
	"endpointslice-controller",
	"endpointslice-mirroring-controller",
	"ephemeral-volume-controller",
	"kube-apiserver-serving-clustertrustbundle-publisher-controller",
	"node-ipam-controller",
	"node-lifecycle-controller",
	"node-route-controller",
	"persistentvolume-attach-detach-controller",
	"persistentvolume-binder-controller",
	"persistentvolume-expander-controller",
	"persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller",
	"podcertificaterequest-cleaner-controller",
	"resourceclaim-controller",
	"service-lb-controller",
	"storage-version-migrator-controller",
	"storageversion-garbage-collector-controller",
	"taint-eviction-controller",
	"ttl-controller",
	"volumeattributesclass-protection-controller",
}

// Everything runs in the work folder, and files are named relative to it: the path of a Unix socket must fit
// into about 100 bytes, and temporary folders of tests have long names.

// etcdArgs makes etcd serve only on a Unix socket, because a port would have to be found and would be open to
// every user of the machine. Its advertised address is unused, but must be a URL with a port. A single member
// elects itself after the first heartbeat interval. A shorter one would make it ready a bit sooner, and cost CPU
// time as long as it runs.
func etcdArgs() []string {
	const advertised = "http://" + loopback + ":1"
	return []string{
		"--name=default",
		"--data-dir=" + dataDir,
		"--unsafe-no-fsync",
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=" + advertised,
		"--listen-peer-urls=unix://" + etcdPeerSocket,
		"--initial-advertise-peer-urls=" + advertised,
		"--initial-cluster=default=" + advertised,
		"--heartbeat-interval=100",
		"--election-timeout=500",
	}
}

// apiServerArgs uses the default admission. The endpoints of the Service default/kubernetes are omitted,
// because they must not be a loopback address.
func apiServerArgs(port int, o Options) []string {
	pki := func(file string) string { return filepath.Join(pkiDir, file) }
	args := []string{
		"--etcd-servers=unix:" + etcdSocket,
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + strconv.Itoa(port),
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + pki(servingCertFile),
		"--tls-private-key-file=" + pki(servingKeyFile),
		"--client-ca-file=" + pki(caFile),
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pki(serviceAccountKey),
		"--service-account-signing-key-file=" + pki(serviceAccountKey),
		"--profiling=false",
	}
	if o.seeding {
		args = append(args, "--disable-admission-plugins=NamespaceLifecycle")
	}
	if o.Audit {
		args = append(args,
			"--audit-policy-file="+auditPolicyFile,
			"--audit-log-path="+auditLogFile,
			// A line is in the file before its request's response ends.
			"--audit-log-mode=blocking",
			// A cursor's offset would be void in a rotated file.
			"--audit-log-maxsize=0",
		)
	}
	return args
}

func controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + controllerFile,
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + filepath.Join(pkiDir, serviceAccountKey),
		"--root-ca-file=" + filepath.Join(pkiDir, caFile),
		"--controllers=*,-" + strings.Join(idleControllers, ",-"),
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		// Nothing uses its port.
		"--secure-port=0",
		"--profiling=false",
	}
}
