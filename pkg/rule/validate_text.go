package rule

import (
	"maps"
	"slices"
	"strings"
	"text/template/parse"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// goTemplateVariables are the variables that Prometheus declares before a text.
const goTemplateVariables = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"

// goTemplateFunctions are text/template's functions and those that Prometheus adds.
// Parsing needs their names alone, and a value that is not nil.
var goTemplateFunctions = functionNames(
	"and", "call", "html", "index", "js", "len", "not", "or", "print", "printf", "println", "slice", "urlquery",
	"eq", "ge", "gt", "le", "lt", "ne",
	"args", "externalURL", "first", "graphLink", "humanize", "humanize1024", "humanizeDuration", "humanizePercentage",
	"humanizeTimestamp", "label", "match", "now", "parseDuration", "pathPrefix", "query", "reReplaceAll", "safeHtml",
	"sortByLabel", "stripDomain", "stripPort", "strvalue", "tableLink", "title", "toDuration", "toLower", "toTime", "toUpper",
	"urlQueryEscape", "value",
)

func functionNames(names ...string) map[string]any {
	out := make(map[string]any, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// checkGoTemplates parses the texts that Prometheus renders. They are not run: that
// is the spoke's.
func checkGoTemplates(field string, texts map[string]v1alpha1.LabelText) *Invalid {
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		text := string(texts[key])
		if !strings.Contains(text, "{{") {
			continue
		}
		if _, err := parse.Parse("text", goTemplateVariables+text, "", "", goTemplateFunctions); err != nil {
			message := strings.TrimPrefix(err.Error(), "template: text:")
			return invalid(keyed(field, key), "it is no valid Prometheus template: line %s", message)
		}
	}
	return nil
}
