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

// The limits of a Client that sets none.
const (
	defaultTimeout  = 30 * time.Second
	defaultBytes    = 64 << 20
	defaultRequests = 200
	defaultRules    = 50_000
	defaultPage     = 500
)

// Client asks one Prometheus or ThanosRuler. It is safe for concurrent use, and its
// methods ask by GET alone. A limit that is zero has a default.
type Client struct {
	// HTTP sends the requests, and adds what credential they need. The default is
	// http.DefaultClient. Whatever it says of redirects, none is followed, and no
	// cookies are kept.
	HTTP *http.Client

	// Base is the address of the API, up to and without /api/v1. Its query is not used.
	Base *url.URL

	// Timeout bounds each call, all its requests together. The default is 30 s.
	Timeout time.Duration

	// MaxBytes bounds what is read in a call. The default is 64 MiB.
	MaxBytes int64

	// MaxRequests bounds the requests of a call. The default is 200.
	MaxRequests int

	// MaxRules bounds the rules that are read in a call. The default is 50,000.
	MaxRules int

	// PageSize is how many groups to ask for at a time. The default is 500. Prometheus
	// before 3.1 has no pages, and answers with all groups.
	PageSize int
}

// call is what is common to the requests of one call of a method.
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

// address is that of an endpoint of the API.
func (c *Client) address(endpoint string, query url.Values) string {
	u := c.Base.JoinPath("api/v1", endpoint)
	u.RawQuery, u.Fragment = query.Encode(), ""
	return u.String()
}

// get asks an endpoint. The caller closes the answer, whose status is 200. Other
// statuses are errors of type *Error.
func (c *call) get(ctx context.Context, address string) (*http.Response, error) {
	if c.requestsLeft <= 0 {
		return nil, &Error{Kind: TooMuch, Message: fmt.Sprintf("the answer needs more than %d requests", cmp.Or(c.client.MaxRequests, defaultRequests))}
	}
	c.requestsLeft--
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("creating a request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable("the evaluator can't be reached", err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	return nil, problem(res)
}

// unreachable is the error of a request that was not answered, or not to the end.
func unreachable(what string, err error) *Error {
	// The address is the caller's, and may hold half an expression.
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		what = "the evaluator did not answer in time"
	}
	return &Error{Kind: Unreachable, Message: what + ": " + clip(err.Error(), maxSaid), cause: err}
}
