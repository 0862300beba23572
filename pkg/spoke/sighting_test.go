package spoke

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

// Evaluators are listed in pages that the spoke can answer within the bounds. Large objects hide others, but are no
// reason to disconnect the spoke.
func TestSightingAdd(t *testing.T) {
	tooMuch := func(part bool) error { return fmt.Errorf("reading: %w", &TooLargeError{part: part}) }
	for name, tc := range map[string]struct {
		objects int
		// fits is the largest page that the spoke may send, or 0 for any.
		fits int64
		// token is the beginning of the tokens for the next page.
		token    string
		err      error
		requests int
		listed   int
		more     bool
		failed   bool
	}{
		"none":                      {requests: 1},
		"few":                       {objects: 3, requests: 1, listed: 3},
		"as many as are listed":     {objects: maxListed, requests: 1, listed: maxListed},
		"more than are listed":      {objects: maxListed + 1, requests: 1, listed: maxListed, more: true},
		"large ones":                {objects: 20, fits: 12, requests: 3, listed: 20},
		"many large ones":           {objects: maxListed, fits: 12, requests: maxEvaluatorPages, listed: 7 * 12, more: true},
		"very large ones":           {objects: 5, fits: 1, requests: 2 + 5, listed: 5},
		"one that is too large":     {objects: 5, fits: -1, requests: 3, more: true},
		"many very large ones":      {objects: maxListed, fits: 1, requests: maxEvaluatorPages, listed: maxEvaluatorPages - 2, more: true},
		"one that is never read":    {err: tooMuch(false), requests: 1, failed: true},
		"a token that is too long":  {objects: 2 * maxListed, token: strings.Repeat("0", maxToken), fits: 12, requests: 2, listed: 12, failed: true},
		"an answer that is no list": {err: errors.New("no"), requests: 1, failed: true},
		"the kind is not served":    {err: errNotFound, requests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, requests := &Sighting{}, 0
			err := s.add(t.Context(), func(_ context.Context, o metav1.ListOptions) ([]v1alpha1.Evaluator, string, error) {
				requests++
				switch {
				case tc.err != nil:
					return nil, "", tc.err
				case tc.fits != 0 && o.Limit > tc.fits:
					return nil, "", tooMuch(true)
				}
				from, _ := strconv.Atoi(o.Continue)
				to := min(from+int(o.Limit), tc.objects)
				if to == tc.objects {
					return make([]v1alpha1.Evaluator, to-from), "", nil
				}
				return make([]v1alpha1.Evaluator, to-from), tc.token + strconv.Itoa(to), nil
			})
			if (err != nil) != tc.failed || requests != tc.requests || len(s.List) != tc.listed || s.More != tc.more {
				t.Errorf("%d requests, %d listed, more: %v, %v", requests, len(s.List), s.More, err)
			}
		})
	}
}
