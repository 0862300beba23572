package spoke

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Defaults of Limits.
const (
	// DefaultMaxObjects is how many objects of a kind a spoke may have.
	DefaultMaxObjects = 20_000
	// DefaultMaxMemory is the size of a spoke's cached objects, in bytes. While lists are read, the process
	// needs about three times as much.
	DefaultMaxMemory = 48 << 20
)

// Bounds that nobody should have to raise.
const (
	// maxHeader bounds the header of an answer.
	maxHeader = 64 << 10
	// maxVersionAnswer bounds the answer to GET /version, which has a few hundred bytes.
	maxVersionAnswer = 16 << 10
	// maxRefusal bounds the answer to a refused request. The error page of a proxy is smaller. maxRefusalValues bounds the
	// JSON values in it. Each cause of a refusal has four.
	maxRefusal, maxRefusalValues = 256 << 10, 1 << 13
	// maxBehind bounds the answer of a server behind the API server. pkg/evaluator reads less.
	maxBehind = 64 << 20
	// keptNesting is the depth of JSON that is decoded; what is deeper is left out. Usual objects have less than 20 levels.
	// But anyone who can write an object can nest its managedFields up to 10,000 levels, which an API server accepts.
	// Inside of a list or an event, that is deeper than decoders accept, so it would end the session of the spoke.
	// maxNesting is more than an API server accepts.
	keptNesting, maxNesting = 100, 20_000
	// maxValues, maxMetadataValues and maxPageValues bound the JSON values in an object, in the metadata of one, and in a
	// page of a list: a value of two bytes, such as {}, can become a struct of several hundred bytes. etcd's limit of
	// 1.5 MiB for an object is reached first by everything that an API server accepts: otherwise, anyone who can create
	// a PrometheusRule there could end the session. Its rules have two values in 11 bytes at most, {"expr":0}.
	maxValues, maxMetadataValues, maxPageValues = 5 << 16, 1 << 19, 1 << 19
	// maxShort bounds the objects in lists that are read in one answer, such as those of evaluators.
	maxShort = 1000
	// maxShortValues bounds the JSON values in them. An element of two bytes can become a container of a pod.
	maxShortValues = 1 << 17
	// fleetPages bounds the total size of the pages that are read concurrently, in bytes.
	fleetPages = 128 << 20
)

// Limits bound the memory that a spoke can use in the manager. Zero means the default.
type Limits struct {
	// Objects is the number of objects of each kind.
	Objects int
	// Memory is the size of the cached objects, in bytes. A page of a list may have a third of it, the metadata of an
	// object a quarter, and another object a twenty-fourth.
	Memory int64
}

func (l Limits) objects() int64 {
	if l.Objects > 0 {
		return int64(l.Objects)
	}
	return DefaultMaxObjects
}

func (l Limits) memory() int64 {
	if l.Memory > 0 {
		return l.Memory
	}
	return DefaultMaxMemory
}

// The flags that raise limits, as messages name them. A page and an object can have a part of the memory.
const (
	objectsFlag  = "chart value spokeLimits.objects, --spoke-max-objects"
	memoryFlag   = "chart value spokeLimits.memory, --spoke-max-memory"
	pageFlag     = "a third of " + memoryFlag
	metadataFlag = "a quarter of " + memoryFlag
	decodedFlag  = "a twelfth of " + memoryFlag
	objectFlag   = "a twenty-fourth of " + memoryFlag
)

// bounds are the bounds of one answer, or of one event of a watch. Zero means no bound.
type bounds struct {
	bytes, values, items int64
	// decoded bounds the bytes that are not left out.
	decoded int64
	// flag is the Flag of a TooLargeError about bytes.
	flag string
}

// answerTo returns the bounds of the answer to a request.
func (l Limits) answerTo(req *http.Request, resp *http.Response) bounds {
	object := bounds{bytes: l.memory() / 24, values: maxValues, flag: objectFlag}
	if ofMetadata(req) {
		object = bounds{bytes: l.memory() / 4, decoded: l.memory() / 12, values: maxMetadataValues, flag: metadataFlag}
	}
	query := req.URL.Query()
	switch {
	case req.Context().Value(asideKey{}) != nil:
		return bounds{bytes: maxBehind}
	case resp.StatusCode >= http.StatusMultipleChoices && resp.Header.Get("Content-Type") == typeJSON:
		return bounds{bytes: maxRefusal, values: maxRefusalValues}
	case resp.StatusCode >= http.StatusMultipleChoices: // it is not decoded
		return bounds{bytes: maxRefusal}
	case pageOf(req) != nil:
		return bounds{bytes: l.memory() / 3, values: maxPageValues, items: l.objects(), flag: pageFlag}
	case strings.HasSuffix(req.URL.Path, "/version"):
		return bounds{bytes: maxVersionAnswer, values: maxValues}
	case query.Get("watch") != "":
		return object // for each event
	case query.Get("limit") != "" && query.Get("limit") != "1":
		return bounds{bytes: l.memory() / 3, values: maxShortValues, items: maxShort, flag: pageFlag}
	case req.Context().Value(partialKey{}) != nil:
		return bounds{bytes: l.memory() / 24, values: maxShortValues, items: maxShort, flag: objectFlag}
	}
	return object
}

// spareKey marks requests whose answer the caller can do without: the session goes on if it is too large.
type spareKey struct{}

// spare marks the requests of a context as such, with the bounds of a list that may be read in part.
func spare(ctx context.Context) context.Context {
	return context.WithValue(context.WithValue(ctx, spareKey{}, true), partialKey{}, true)
}

// ofMetadata reports whether a request is for the metadata of objects. Those of built-in kinds are stored in another
// format than JSON, in which a byte of a text can become six: 1.5 MiB, which etcd accepts, become 9 MiB. But outside of
// unusedLists, only annotations can have such texts, and all of an object have 256 KiB at most.
func ofMetadata(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// pageOf returns the page of a list that a request reads, or nil.
func pageOf(req *http.Request) *inflow {
	if i, ok := req.Context().Value(inflowKey{}).(*inflow); ok && !i.single {
		return i
	}
	return nil
}

// errTooLarge matches every TooLargeError.
var errTooLarge = errors.New("the answer is too large")

// TooLargeError says that a spoke sent more than is read, or has more than is cached.
type TooLargeError struct {
	// What is the thing that is too large.
	What string
	// Value is the actual amount and Bound the limit, in Unit.
	Value, Bound int64
	Unit         string
	// Flag is the flag that raises the limit, or the part of its value that is the limit, or "".
	Flag string
	// part means that a request for fewer objects may succeed.
	part bool
	// late means that an event arrived more slowly than leastRate for eventTime; it has no Value.
	late bool
}

// Error implements error.
func (e *TooLargeError) Error() string {
	if e.late {
		return fmt.Sprintf("%s did not arrive completely: fewer than %d bytes of it arrived per second, for %v", e.What, leastRate, eventTime)
	}
	p := message.NewPrinter(language.English)
	bound := p.Sprintf("%d", e.Bound)
	if e.Flag != "" {
		bound += " (" + e.Flag + ")"
	}
	return p.Sprintf("%s: %d %s; the limit is %s", e.What, e.Value, e.Unit, bound)
}

// Is makes it an errTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == errTooLarge }

// tooLarge returns the TooLargeError in an error's chain, or nil.
func tooLarge(err error) *TooLargeError {
	e, _ := errors.AsType[*TooLargeError](err)
	return e
}

// tooLargeAdvice says what to do about a spoke that is too large.
func tooLargeAdvice(e *TooLargeError) string {
	todo := "check which server answers at the address in the kubeconfig"
	switch {
	case e.late:
		todo = "check the network link, and which server or proxy answers at the address in the kubeconfig"
	case e.Flag == fleetFlag:
		todo = "find out which spokes have grown. If their objects belong there, raise resources.limits.memory"
	case e.Flag != "":
		todo = "find out which objects fill the cluster. If they belong there, raise this chart value and, as docs/reference/limits.md describes, resources.limits.memory"
	}
	return "the rules in the spoke stay unchanged; " + todo
}

// answerName names the answer to a request in a message.
func answerName(req *http.Request, code int) string {
	path := req.URL.Path
	if req.URL.Query().Get("watch") != "" && code == http.StatusOK {
		return "a watch event of " + path
	}
	return fmt.Sprintf("the answer to %s %s", req.Method, path)
}
