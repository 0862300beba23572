package evaluator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Default limits of a Client.
const (
	defaultTimeout  = 30 * time.Second
	defaultBytes    = 64 << 20
	defaultRequests = 200
	defaultRules    = 50_000
	defaultPage     = 500
)

// Client queries one Prometheus or ThanosRuler. It is safe for concurrent use, and sends only GET requests. A
// limit of zero means the default.
type Client struct {
	// HTTP sends the requests and adds the credential. The default is http.DefaultClient. Redirects are never
	// followed, and cookies are not kept.
	HTTP *http.Client

	// Base is the address of the API without /api/v1. Its query is not used.
	Base *url.URL

	// Timeout bounds each call with all its requests. The default is 30 s.
	Timeout time.Duration

	// MaxBytes bounds the bytes read in a call. The default is 64 MiB.
	MaxBytes int64

	// MaxRequests bounds the requests of a call. The default is 200.
	MaxRequests int

	// MaxRules bounds the rules read in a call. The default is 50,000.
	MaxRules int

	// PageSize is the number of groups per page. The default is 500. Prometheus before 3.1 has no pages, and
	// returns all groups.
	PageSize int
}

// call is the common state of the requests of one call.
type call struct {
	client       *Client
	http         http.Client
	requestsLeft int
	bytesLeft    int64
}

func (c *Client) newCall(ctx context.Context) (*call, context.Context, context.CancelFunc) {
	sender := http.DefaultClient
	if c.HTTP != nil {
		sender = c.HTTP
	}
	out := &call{
		client:       c,
		http:         *sender,
		requestsLeft: cmp.Or(c.MaxRequests, defaultRequests),
		bytesLeft:    cmp.Or(c.MaxBytes, defaultBytes),
	}
	out.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	out.http.Jar = nil
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, defaultTimeout))
	return out, ctx, cancel
}

// address returns the address of an endpoint of the API.
func (c *Client) address(endpoint string, query url.Values) string {
	u := c.Base.JoinPath("api/v1", endpoint)
	u.RawQuery, u.Fragment = query.Encode(), ""
	return u.String()
}

// get requests an endpoint. The caller closes the response, whose status is 200. Other statuses become errors
// of type *Error.
func (c *call) get(ctx context.Context, address string) (*http.Response, error) {
	if c.requestsLeft <= 0 {
		most := int64(cmp.Or(c.client.MaxRequests, defaultRequests))
		return nil, NewTooMuch("one poll", most+1, most, "requests", "reduce the number of groups of rules in that Prometheus")
	}
	c.requestsLeft--
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("creating a request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable("it can't be reached", err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, problem(res)
}

// unreachable returns the error of a request without an answer, or with part of one.
func unreachable(what string, err error) *Error {
	// The error's address repeats the query.
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		what = "it did not answer in time"
	}
	return &Error{Kind: Unreachable, Message: what + ": " + clip(err.Error(), maxSaid), cause: err}
}
