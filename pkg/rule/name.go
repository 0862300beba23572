package rule

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// MaxNameLength limits the names of PrometheusRules. prometheus-operator uses each name in a ConfigMap
// key "<namespace>-<name>-<uid>.yaml" of at most 253 characters. A single longer key makes the sync of
// every rule of that Prometheus fail.
const MaxNameLength = 147

const (
	nameDigestLength = 10 // 50 bits, enough to distinguish the rules of a fleet
	hashLength       = 26 // 130 bits, and well below the 63 characters of a label
)

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ObjectName returns the name of a source's PrometheusRule in every spoke: "<namespace>-<name>-<digest>".
// The digest, which includes the hub's id and the kind of all sources but AlertRules, distinguishes rules
// whose readable part is the same (a-b/c and a/b-c, long names, two hubs, two kinds).
func ObjectName(hubID string, key Key) string {
	parts := []string{hubID, key.Namespace, key.Name}
	if key.Kind != v1alpha1.AlertRuleKind {
		parts = append(parts, key.Kind)
	}
	return readableName(digestOf(parts...), key.Namespace, key.Name)
}

// GeneratedName returns the name of the AlertRule that a template generates for a workload:
// "<template>-<cluster>-<namespace>-<workload>-<digest>". The digest contains the kind, unless it is Deployment, which
// was once the only one.
func GeneratedName(template, cluster string, kind v1alpha1.WorkloadKind, namespace, workload string) string {
	digested := []string{template, cluster, namespace, workload}
	if kind != v1alpha1.DeploymentKind {
		digested = append(digested, string(kind))
	}
	return readableName(digestOf(digested...), template, cluster, namespace, workload)
}

// Hash returns a short digest of parts. That of the namespace and the name of an AlertRule is the value of
// AlertRuleHashLabel.
func Hash(parts ...string) string { return digestOf(parts...)[:hashLength] }

// digestOf hashes parts unambiguously, because no name contains a NUL.
func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return base32Lower.EncodeToString(sum[:])
}

func readableName(digest string, parts ...string) string {
	suffix := digest[:nameDigestLength]
	separators := len(parts) // one before each but the first, one before the digest
	text := subdomain(strings.Join(shorten(parts, MaxNameLength-len(suffix)-separators), "-"))
	if text == "" {
		return suffix
	}
	return text + "-" + suffix
}

// shorten cuts the longest parts until all of them fit, so that one long name does not displace the
// others.
func shorten(parts []string, budget int) []string {
	total, longest := 0, 0
	for _, p := range parts {
		total += len(p)
		longest = max(longest, len(p))
	}
	for total > budget {
		longest--
		total = 0
		for _, p := range parts {
			total += min(len(p), longest)
		}
	}
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = p[:min(len(p), longest)]
	}
	return out
}

// subdomain returns a valid DNS subdomain made from s, or "". Cutting leaves sequences that are not
// valid ("a.-b"), and callers may pass any string.
func subdomain(s string) string {
	out := make([]byte, 0, len(s))
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.':
		default:
			c = '-'
		}
		last := byte('.') // a leading dash or dot is dropped like one after a dot
		if len(out) > 0 {
			last = out[len(out)-1]
		}
		switch {
		case last == '.' && (c == '-' || c == '.'):
			continue
		case last == '-' && c == '.':
			continue
		}
		out = append(out, c)
	}
	return strings.TrimRight(string(out), "-.")
}
