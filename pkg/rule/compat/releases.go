package compat

import (
	"github.com/prometheus/prometheus/promql/parser"
)

// The features of Prometheus that change what it parses.
const (
	experimentalFunctions = "promql-experimental-functions"
	durationExpr          = "promql-duration-expr"
	extendedSelectors     = "promql-extended-range-selectors"
	fillModifiers         = "promql-binop-fill-modifiers"
)

// came is the release with which something came to Prometheus, the feature flag that it needs, and the
// release that no longer needs the flag. A zero stable means that it still needs it.
//
// The data is from Prometheus' CHANGELOG.md, with the number of the pull request. Entries without a
// number were looked up in the sources of the release and of the one before it.
type came struct {
	with   release
	flag   string
	stable release
}

func since(major, minor int) came {
	return came{with: release{major, minor}, stable: release{major, minor}}
}

func experimental(major, minor int) came {
	return came{with: release{major, minor}, flag: experimentalFunctions}
}

var (
	keepFiringForCame   = since(2, 42)                                                   // #11827
	atModifierCame      = came{release{2, 25}, "promql-at-modifier", release{2, 33}}     // #8121, #10121
	negativeOffsetCame  = came{release{2, 26}, "promql-negative-offset", release{2, 33}} // #8487, #10121
	quotedNamesCame     = came{release{2, 55}, "utf8-names", release{3, 0}}              // #14482, #14705
	numbersCame         = since(2, 54)                                                   // #9138, #12821
	durationExprCame    = came{release{3, 4}, durationExpr, release{3, 14}}              // #16249, #19033
	durationStepCame    = came{release{3, 6}, durationExpr, release{3, 14}}              // #16777
	durationMinMaxCame  = came{release{3, 13}, durationExpr, release{3, 14}}             // #18687: min and max before
	extendedCame        = came{with: release{3, 7}, flag: extendedSelectors}             // #16457
	fillCame            = came{with: release{3, 10}, flag: fillModifiers}                // #17644
	startTimestampsCame = came{with: release{3, 14}, flag: experimentalFunctions}        // #19089
	firstOverTimeCame   = came{release{3, 7}, experimentalFunctions, release{3, 14}}     // #16963, #19093
)

// functionCame holds the functions that Prometheus 2.0 did not have.
var functionCame = map[string]came{
	"absent_over_time":  since(2, 16), // #6490
	"clamp":             since(2, 26), // #8457
	"last_over_time":    since(2, 26), // #8457
	"sgn":               since(2, 26), // #8457
	"present_over_time": since(2, 29), // #9097

	// #9239, #9248
	"acos": since(2, 31), "acosh": since(2, 31), "asin": since(2, 31), "asinh": since(2, 31), "atan": since(2, 31),
	"atanh": since(2, 31), "cos": since(2, 31), "cosh": since(2, 31), "sin": since(2, 31), "sinh": since(2, 31),
	"tan": since(2, 31), "tanh": since(2, 31), "deg": since(2, 31), "rad": since(2, 31), "pi": since(2, 31),

	"histogram_count":    since(2, 40), // sources
	"histogram_sum":      since(2, 40), // sources
	"histogram_fraction": since(2, 40), // sources
	"histogram_stddev":   since(2, 47), // #12614
	"histogram_stdvar":   since(2, 47), // #12614
	"histogram_avg":      since(2, 51), // #13467

	"mad_over_time":                experimental(2, 49), // #13059
	"sort_by_label":                experimental(2, 49), // #11299
	"sort_by_label_desc":           experimental(2, 49), // #11299
	"info":                         experimental(2, 55), // #14495
	"double_exponential_smoothing": experimental(3, 0),  // #14930
	"ts_of_last_over_time":         experimental(3, 5),  // #16722
	"ts_of_max_over_time":          experimental(3, 5),  // #16722
	"ts_of_min_over_time":          experimental(3, 5),  // #16722
	"first_over_time":              firstOverTimeCame,
	"ts_of_first_over_time":        experimental(3, 7),  // #17021
	"histogram_quantiles":          experimental(3, 11), // #17285
	"start":                        experimental(3, 12), // #17877
	"end":                          experimental(3, 12), // #17877
	"range":                        experimental(3, 12), // #17877
	"step":                         experimental(3, 12), // #17877
	"max_of":                       experimental(3, 13), // #18687
	"min_of":                       experimental(3, 13), // #18687
	"start_timestamp":              startTimestampsCame,
}

// operatorCame holds the aggregations and operators that Prometheus 2.0 did not have.
var operatorCame = map[parser.ItemType]came{
	parser.GROUP:       since(2, 20),        // #7480
	parser.ATAN2:       since(2, 31),        // #9515
	parser.LIMITK:      experimental(2, 54), // #12503
	parser.LIMIT_RATIO: experimental(2, 54), // #12503
	parser.TRIM_LOWER:  since(3, 11),        // #17904
	parser.TRIM_UPPER:  since(3, 11),        // #17904
}

// templateCame lists the functions and variables of texts that Prometheus 2.5 did not have. It is the
// first release that checks texts when it loads them.
var templateCame = map[string]came{
	"$externalLabels":    since(2, 10), // #5463
	"humanizePercentage": since(2, 11), // #5670
	"$externalURL":       since(2, 28), // #8878
	"parseDuration":      since(2, 32), // #8817
	"stripPort":          since(2, 33), // #10002
	"stripDomain":        since(2, 36), // #10475
	"toTime":             since(2, 38), // #10993
	"now":                since(3, 6),  // #16619
	"toDuration":         since(3, 6),  // #16619
	"urlQueryEscape":     since(3, 8),  // #17403
}
