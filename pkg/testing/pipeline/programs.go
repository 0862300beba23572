package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// resources are the resources of kube-state-metrics that rules use.
const resources = "cronjobs,daemonsets,deployments,horizontalpodautoscalers,jobs,namespaces,pods,replicasets,statefulsets"

// preparePrograms sets how to run each program.
func (p *Pipeline) preparePrograms() error {
	paths := map[string]string{}
	for name, folder := range map[string]string{"prometheus": "prometheus", "prometheus-operator": "pipeline", "kube-state-metrics": "pipeline"} {
		path, err := binary(folder, name)
		if err != nil {
			return err
		}
		paths[name] = path
	}
	operatorArgs, err := p.operatorArgs()
	if err != nil {
		return err
	}
	p.operator = &program{
		name: "prometheus-operator", path: paths["prometheus-operator"], logPath: p.logPath("prometheus-operator"), usage: p.member.Usage(),
		args: operatorArgs, readyURL: "http://" + p.address("operator") + "/healthz",
	}
	p.kubeStateMetrics = &program{
		name: "kube-state-metrics", path: paths["kube-state-metrics"], logPath: p.logPath("kube-state-metrics"), usage: p.member.Usage(),
		args: p.kubeStateMetricsArgs(), readyURL: "http://" + p.address("kube-state-metrics") + "/healthz",
	}
	p.prometheus = &program{
		name: "prometheus", path: paths["prometheus"], logPath: p.logPath("prometheus"), usage: p.member.Usage(),
		readyURL: p.PrometheusURL() + "/-/ready",
		args: []string{
			"--config.file=" + p.reloader.configPath(), "--storage.tsdb.path=" + filepath.Join(p.reloader.dir, "data"),
			"--web.listen-address=" + p.address("prometheus"), "--web.enable-lifecycle",
		},
	}
	return nil
}

// operatorArgs writes the files of a client's certificate, and returns the flags.
func (p *Pipeline) operatorArgs() ([]string, error) {
	cfg := p.member.RESTConfig()
	args := []string{
		"--apiserver=" + cfg.Host, "--web.listen-address=" + p.address("operator"),
		fmt.Sprintf("--feature-gates=StatusForConfigurationResources=%t", !p.opts.WithoutBindings),
	}
	for flag, content := range map[string][]byte{"cert-file": cfg.CertData, "key-file": cfg.KeyData, "ca-file": cfg.CAData} {
		path := filepath.Join(p.dir, flag+".pem")
		if err := os.WriteFile(path, content, privateFile); err != nil {
			return nil, fmt.Errorf("writing the certificate of prometheus-operator: %w", err)
		}
		args = append(args, "--"+flag+"="+path)
	}
	return append(args, p.opts.OperatorArgs...), nil
}

func (p *Pipeline) kubeStateMetricsArgs() []string {
	return []string{
		"--kubeconfig=" + p.member.KubeconfigPath(), "--resources=" + resources,
		"--host=" + loopback, "--port=" + strconv.Itoa(p.ports["kube-state-metrics"]),
		"--telemetry-host=" + loopback, "--telemetry-port=" + strconv.Itoa(p.ports["kube-state-metrics' own"]),
	}
}
