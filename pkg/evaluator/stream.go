package evaluator

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// stream reads the JSON of one answer, value by value.
type stream struct {
	dec   *json.Decoder
	meter *meter
}

func (c *call) stream(res *http.Response) *stream {
	m := &meter{ctx: res.Request.Context(), from: res.Body, most: cmp.Or(c.client.MaxBytes, defaultBytes), left: &c.bytesLeft}
	s := &stream{meter: m, dec: json.NewDecoder(m)}
	m.decoded = s.dec.InputOffset
	return s
}

// envelope is the part of an answer around its data.
type envelope struct {
	status   string
	said     said
	warnings []string
}

// answer reads a whole answer, and calls data to read its data. It returns no error only if the evaluator
// reports success.
func (s *stream) answer(data func() error) ([]string, error) {
	var (
		e   envelope
		has bool
	)
	_, err := s.object(func(name string) error {
		switch name {
		case "status":
			return s.value(&e.status)
		case "errorType":
			return s.value(&e.said.ErrorType)
		case "error":
			return s.value(&e.said.Error)
		case "warnings":
			return s.value(&e.warnings)
		case "data":
			has = true
			return data()
		}
		return s.skip()
	})
	if err == nil {
		err = s.end()
	}
	switch {
	case err != nil:
		return nil, s.explain(err)
	case e.status == "error":
		return nil, &Error{Kind: Rejected, Code: http.StatusOK, Message: "it rejects the query: " + e.said.words(nil, "")}
	case e.status != "success" || !has:
		return nil, s.explain(errors.New("it lacks a status or data"))
	}
	return e.warnings, nil
}

// end checks that nothing follows.
func (s *stream) end() error {
	switch _, err := s.dec.Token(); {
	case err == nil:
		return errors.New("it is followed by more data")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// explain returns the error for a failure in a stream.
func (s *stream) explain(err error) error {
	if known := (*Error)(nil); errors.As(err, &known) {
		return err
	}
	if s.meter.err != nil {
		return s.meter.err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	what := clip(err.Error(), maxSaid)
	if s.meter.html {
		what = "it is an HTML page; check for a login page at this address"
	}
	return &Error{Kind: NotAnEvaluator, Code: http.StatusOK, Message: "the answer is not from the Prometheus API: " + what}
}

// value decodes the next value in memory.
func (s *stream) value(into any) error { return s.dec.Decode(into) }

// object reads an object, and calls field to read the value of each field. It returns false for null.
func (s *stream) object(field func(name string) error) (bool, error) {
	there, err := s.open('{')
	if !there || err != nil {
		return false, err
	}
	for s.dec.More() {
		t, err := s.dec.Token()
		if err != nil {
			return true, err
		}
		name, _ := t.(string) // the decoder accepts only strings here
		if err := field(name); err != nil {
			return true, err
		}
	}
	_, err = s.dec.Token()
	return true, err
}

// array reads an array, and calls element to read each element. Null has none.
func (s *stream) array(element func() error) error {
	there, err := s.open('[')
	if !there || err != nil {
		return err
	}
	for s.dec.More() {
		if err := element(); err != nil {
			return err
		}
	}
	_, err = s.dec.Token()
	return err
}

// open reads the start of an object or array, and reports whether it is not null.
func (s *stream) open(want json.Delim) (bool, error) {
	switch t, err := s.dec.Token(); {
	case err != nil:
		return false, err
	case t == nil:
		return false, nil
	case t != want:
		return false, fmt.Errorf("expected a %[2]s at byte %[1]d", s.dec.InputOffset(), want)
	}
	return true, nil
}

// skip reads the next value and drops it. Decoding it as a whole takes less time and memory than its parts.
func (s *stream) skip() error { return s.value(&skipped{}) }

type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }
