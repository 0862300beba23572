package evaluation

import (
	"fmt"
	"strings"

	"github.com/rulefleet/rulefleet/pkg/rule"
)

const (
	// maxCandidates is the number of candidates that a message names.
	maxCandidates = 3
	// maxAmbiguity bounds that message, in bytes. A longer one would be cut off in a status, with its command.
	maxAmbiguity = 512
)

// Ambiguity explains that none of several evaluators is chosen, and how to choose one. It returns ""
// if that is not the case.
func Ambiguity(c rule.Cluster) string {
	candidates := candidates(&c)
	if len(c.Chosen()) > 0 || len(candidates) == 0 || len(c.EvaluatorRefs) > 0 {
		return ""
	}
	e := candidates[0]
	command := fmt.Sprintf(`for example the first one: kubectl patch spokecluster %s --type merge -p '{"spec":{"evaluatorRefs":[{"kind":%q,"namespace":%q,"name":%q}]}}'`,
		c.Name, e.Kind, e.Namespace, e.Name)
	for named := min(len(candidates), maxCandidates); named >= 0; named-- {
		if message := ambiguity(candidates, named, command); len(message) <= maxAmbiguity {
			return message
		}
	}
	return ambiguity(candidates, 0, "in spec.evaluatorRefs: kubectl edit spoke "+c.Name)
}

// ambiguity names some of the candidates. The command comes last so that it can be copied.
func ambiguity(candidates []*rule.Evaluator, named int, command string) string {
	names := make([]string, 0, named+1)
	for _, e := range candidates[:named] {
		names = append(names, e.String())
	}
	if more := len(candidates) - named; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("the spoke has several Prometheus or ThanosRuler objects (%s), and none is chosen; existing rules keep their labels and their namespace. Name the one that evaluates them, %s",
		strings.Join(names, ", "), command)
}
