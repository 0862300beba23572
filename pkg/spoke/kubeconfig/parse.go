package kubeconfig

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Limits of the parser. A kubeconfig with one context, its CA and a client certificate has less than 16 KiB,
// 50 YAML nodes and 10 levels.
const (
	maxBytes = 256 << 10
	maxNodes = 20_000
	maxDepth = 64
)

// maxSeparators bounds the separators before the text is parsed: each takes a hundred times the memory of its
// text.
const maxSeparators = 3 * maxNodes

// keepOne says how to reduce the size of a kubeconfig.
const keepOne = "; keep only the context that is needed ('kubectl config view --raw --flatten --minify')"

// parse parses a kubeconfig within bounds of time and memory. It never returns the parser's errors, which may
// quote a credential.
func parse(kubeconfig []byte) (*clientcmdapi.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, refuse("", "the kubeconfig is empty; put one into the Secret")
	}
	if len(kubeconfig) > maxBytes {
		return nil, refuse("", fmt.Sprintf("the kubeconfig has %d bytes; at most %d are allowed", len(kubeconfig), maxBytes)+keepOne)
	}
	if err := checkYAML(kubeconfig); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, errInvalid
	}
	return cfg, nil
}

var (
	errInvalid = refuse("", "the kubeconfig is not valid YAML of kind Config; create it again ('kubectl config view --raw --flatten --minify')")
	errTooMuch = refuse("", fmt.Sprintf("the kubeconfig has more than %d keys and values", maxNodes)+keepOne)
)

// checkYAML checks the tree of nodes before anything is expanded: aliases can make a small document large, and
// nesting can exhaust a decoder.
func checkYAML(kubeconfig []byte) error {
	separators := 0
	for _, b := range kubeconfig {
		if strings.IndexByte(",:-?[{\n", b) >= 0 {
			separators++
		}
	}
	if separators > maxSeparators {
		return errTooMuch
	}
	var document yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(kubeconfig)).Decode(&document); err != nil {
		return errInvalid
	}
	nodes := 0
	return checkNode(&document, &nodes, 0)
}

func checkNode(n *yaml.Node, nodes *int, depth int) error {
	*nodes++
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return refuse("", "the kubeconfig has YAML anchors or aliases, which are not allowed; write out their values")
	case *nodes > maxNodes:
		return errTooMuch
	case depth > maxDepth:
		return refuse("", fmt.Sprintf("the kubeconfig is nested deeper than %d levels", maxDepth)+keepOne)
	}
	for _, child := range n.Content {
		if err := checkNode(child, nodes, depth+1); err != nil {
			return err
		}
	}
	return nil
}
