package spoke

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// maxErrorBody bounds the part of an error answer that is read, in bytes. A Kubernetes Status takes several
// hundred.
const maxErrorBody = 64 << 10

// redacted replaces a credential.
const redacted = "[redacted]"

// secretsOf returns the parts of a credential that a server sees and could send back.
func secretsOf(cfg *rest.Config) [][]byte {
	var out [][]byte
	for _, s := range []string{cfg.BearerToken, cfg.Password} {
		if s != "" {
			out = append(out, []byte(s))
		}
	}
	return out
}

// redact removes the credential from an error answer, whose text is shown in statuses, Events and logs. A
// proxy may repeat the request there.
func redact(resp *http.Response, secrets [][]byte) {
	if resp.StatusCode < http.StatusBadRequest || len(secrets) == 0 || resp.Body == nil {
		return
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err == nil {
		_, err = io.CopyN(io.Discard, resp.Body, maxRefusal) // an endless answer is cut off
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	_ = resp.Body.Close()
	cut := len(body) == maxErrorBody
	for _, secret := range secrets {
		body = bytes.ReplaceAll(body, secret, []byte(redacted))
		if cut { // possibly within a credential
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
