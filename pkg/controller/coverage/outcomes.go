package coverage

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/rulefleet/rulefleet/pkg/rule"
	"github.com/rulefleet/rulefleet/pkg/rule/coverage"
	"github.com/rulefleet/rulefleet/pkg/spoke"
)

// outcomes keeps what became of the workloads of the engaged spokes: 16 bytes for each, because most workloads of a
// fleet have the same outcomes. The lock of the Counter guards it.
type outcomes map[string]*engagement

// engagement has the outcomes of a spoke since it was engaged. All its workloads are processed again then, and those
// that were deleted meanwhile are not known any more.
type engagement struct {
	since time.Time
	// of has the outcomes by the hash of a workload's key.
	of map[uint64]unique.Handle[string]
}

var seed = maphash.MakeSeed()

func hash(workload rule.Key) uint64 { return maphash.Comparable(seed, workload) }

// record replaces the outcomes of a workload, and reports whether they have changed. The zero value means that there is no
// such workload.
func (o outcomes) record(s *spoke.Spoke, workload rule.Key, is unique.Handle[string]) (changed bool) {
	e := o[s.Name]
	if e == nil || e.since.Before(s.Since) {
		e = &engagement{since: s.Since, of: map[uint64]unique.Handle[string]{}}
		o[s.Name] = e
	}
	if s.Since.Before(e.since) { // a worker of an earlier engagement
		return false
	}
	key := hash(workload)
	was, known := e.of[key]
	if is == (unique.Handle[string]{}) {
		delete(e.of, key)
		return known
	}
	e.of[key] = is
	return !known || is != was
}

// read returns the outcomes of workloads of a spoke. complete is false while one of them was not processed since the
// spoke was engaged. They are nil if it has been engaged again meanwhile.
func (o outcomes) read(s *spoke.Spoke, workloads []rule.Key) (out map[rule.Key]unique.Handle[string], complete bool) {
	out, complete = make(map[rule.Key]unique.Handle[string], len(workloads)), true
	e := o[s.Name]
	switch {
	case e == nil || e.since.Before(s.Since):
		return out, len(workloads) == 0
	case e.since.After(s.Since):
		return nil, false
	}
	for _, w := range workloads {
		of, known := e.of[hash(w)]
		complete = complete && known
		if known {
			out[w] = of
		}
	}
	return out, complete
}

// encode returns outcomes as a text: for each template, the outcome, its name and a newline.
func encode(of coverage.Outcomes) string {
	var b strings.Builder
	for _, template := range slices.Sorted(maps.Keys(of)) {
		b.WriteByte(byte(of[template]))
		b.WriteString(template)
		b.WriteByte('\n')
	}
	return b.String()
}

// decode is the reverse of encode.
func decode(text string) coverage.Outcomes {
	out := coverage.Outcomes{}
	for line := range strings.Lines(text) {
		out[strings.Clone(line[1:len(line)-1])] = coverage.Outcome(line[0])
	}
	return out
}
