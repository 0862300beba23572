package spoke

import (
	"net/http"
	"testing"
	"time"
)

// A clock that is ahead makes objects older, and another one changes nothing.
func TestAhead(t *testing.T) {
	now := time.Now()
	asked := now.Add(-300 * time.Millisecond)
	made := now.Add(-time.Minute)
	for name, tc := range map[string]struct {
		dates []string
		later time.Duration // than made
		want  time.Duration
	}{
		"no answer yet":                {},
		"no date":                      {dates: []string{""}},
		"not a date":                   {dates: []string{"tomorrow"}},
		"the same":                     {dates: []string{httpDate(now)}},
		"a second ahead":               {dates: []string{httpDate(now.Add(time.Second))}},
		"behind":                       {dates: []string{httpDate(now.Add(-time.Hour))}},
		"ahead":                        {dates: []string{httpDate(now.Add(time.Hour))}, want: time.Hour},
		"set right later":              {dates: []string{httpDate(now.Add(time.Hour)), httpDate(now)}, want: time.Hour},
		"from before it was set right": {dates: []string{httpDate(now.Add(time.Hour)), httpDate(now)}, later: time.Hour + time.Minute, want: time.Hour},
		"from after it was set right":  {dates: []string{httpDate(now.Add(time.Hour)), httpDate(now)}, later: time.Hour + 2*time.Minute},
		"it was a broken clock":        {dates: []string{"Fri, 31 Dec 9999 23:59:59 GMT"}},
		"ahead, and silent":            {dates: []string{httpDate(now.Add(time.Hour)), ""}, want: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Spoke{Clock: &Clock{}}
			for _, date := range tc.dates {
				s.Clock.Saw(http.Header{"Date": {date}}, asked, now)
			}
			created := made.Add(tc.later)
			// An object must not count as younger than it is, whenever in its second the spoke answered.
			if got := created.Sub(s.Made(created)); got < tc.want+ago(tc.want) || tc.want == 0 && got > 0 || got > tc.want+3*time.Second {
				t.Errorf("an object is older by %v, want %v", got, tc.want)
			}
		})
	}
	if got := (&Spoke{}).Made(made); !got.Equal(made) {
		t.Errorf("without a connection, an object was created at %v", got)
	}
}

// ago is how long before its answer a request was sent, if the answer counts.
func ago(ahead time.Duration) time.Duration { return min(ahead, 300*time.Millisecond) }

func httpDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// The answer to a probe tells the spoke's time. Those to other requests may come from behind its API server.
func TestAheadByAProbe(t *testing.T) {
	x := newCrossing(t, true)
	x.here.answerBy(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", httpDate(time.Now().Add(time.Hour)))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
	})
	created := time.Now()
	s := &Spoke{Clock: &x.connection.clock}
	_ = x.write(t.Context())
	if !s.Made(created).Equal(created) {
		t.Error("another answer counts")
	}
	if err := x.get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := created.Sub(s.Made(created)).Round(time.Minute); got != time.Hour {
		t.Errorf("it is ahead by %v", got)
	}
}
