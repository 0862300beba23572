package env

import (
	"bytes"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestProgress has one line that changes on a terminal, and a line for each change elsewhere.
func TestProgress(t *testing.T) {
	for _, tc := range []struct {
		name    string
		columns func() int
		want    string
	}{
		{"file", nil, "Waiting: pods\nWaiting: more \ufffd[2Jpods\nWaiting: again\n"},
		{"terminal", func() int { return 80 }, "\r\x1b[KWaiting (1s): pods\r\x1b[KWaiting (2s): pods\r\x1b[KWaiting (3s): more \ufffd[2Jpods\r\x1b[K\r\x1b[KWaiting (4s): again\r\x1b[K"},
		{"narrow", func() int { return 18 }, "\r\x1b[KWaiting (1s): pod\r\x1b[KWaiting (2s): pod\r\x1b[KWaiting (3s): mor\r\x1b[K\r\x1b[KWaiting (4s): aga\r\x1b[K"},
		{"unknown width", func() int { return 0 }, "\r\x1b[KWaiting (1s): pods\r\x1b[KWaiting (2s): pods\r\x1b[KWaiting (3s): more \ufffd[2Jpods\r\x1b[K\r\x1b[KWaiting (4s): again\r\x1b[K"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			now := time.Unix(0, 0)
			e := &Env{IOStreams: genericiooptions.IOStreams{ErrOut: &b}, Columns: tc.columns, Now: func() time.Time {
				defer func() { now = now.Add(time.Second) }()
				return now
			}}
			p := e.Progress()
			if tc.columns == nil {
				now = now.Add(time.Second)
			}
			p.Show("pods")
			p.Show("pods")
			p.Show("more \x1b[2Jpods")
			p.Done()
			p.Done()
			p.Show("again")
			p.Done()
			if got := b.String(); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
