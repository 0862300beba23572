package spoke

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// maxErrorBody bounds what is read of an answer that refuses, in bytes. A Status of
// Kubernetes' takes a few hundred.
const maxErrorBody = 64 << 10

// redacted stands in place of a credential.
const redacted = "[redacted]"

// secretsOf are the parts of a credential that a server gets to see, and could give back.
func secretsOf(cfg *rest.Config) [][]byte {
	var out [][]byte
	for _, s := range []string{cfg.BearerToken, cfg.Password} {
		if s != "" {
			out = append(out, []byte(s))
		}
	}
	return out
}

// redact takes the credential out of an answer that refuses: its words are shown in
// statuses, Events and logs, and a proxy may well repeat there what it was sent.
func redact(resp *http.Response, secrets [][]byte) {
	if resp.StatusCode < http.StatusBadRequest || len(secrets) == 0 || resp.Body == nil {
		return
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil {
		_, err = io.CopyN(io.Discard, resp.Body, maxRefusal) // one without an end is not read to it
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	_ = resp.Body.Close()
	cut := len(body) == maxErrorBody
	for _, secret := range secrets {
		body = bytes.ReplaceAll(body, secret, []byte(redacted))
		if cut { // in the middle of one, maybe
			body = body[:max(0, len(body)-len(secret))]
		}
	}
	resp.ContentLength = int64(len(body))
	resp.Header.Del("Content-Length")
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failed{err}))
}

// failed is a reader that ends by an error, or without one.
type failed struct{ err error }

// Read implements io.Reader.
func (f failed) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}
