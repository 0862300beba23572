package spoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
)

func TestNextPage(t *testing.T) {
	for name, tc := range map[string]struct {
		limit      int64
		objects    int
		bytes      int64
		compressed bool
		took       time.Duration
		want       int64
	}{
		"a fast link":                         {limit: 250, objects: 250, bytes: 500_000, took: 20 * time.Millisecond, want: 500},
		"no more than that":                   {limit: 500, objects: 500, bytes: 500_000, took: 20 * time.Millisecond, want: 500},
		"a slow link":                         {limit: 250, objects: 250, bytes: 500_000, took: 25 * time.Second, want: 50},
		"a slower link":                       {limit: 50, objects: 50, bytes: 50_000, took: 50 * time.Second, want: leastPage},
		"a link that became faster":           {limit: 50, objects: 50, bytes: 50_000, took: time.Second, want: 100},
		"so many that they are compressed":    {limit: 250, objects: 250, bytes: 400_000, compressed: true, took: 25 * time.Second, want: 103},
		"so many that they become compressed": {limit: 50, objects: 50, bytes: 80_000, took: 25 * time.Second, want: leastPage},
		"small objects":                       {limit: 250, objects: 250, bytes: 50_000, compressed: true, took: time.Second, want: 500},
		"nothing":                             {limit: 250, took: 50 * time.Second, want: 250},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextPage(tc.limit, tc.objects, tc.bytes, tc.compressed, tc.took); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// shelf answers lists of this number of objects in pages, as an API server does.
type shelf struct {
	objects int
	// fail returns the error of a page that is asked for, by where it begins.
	fail  func(from int) error
	asked []int
	most  int64
	comes int64 // bytes of an answer
}

func (s *shelf) list(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
	from, _ := strconv.Atoi(o.Continue)
	s.asked, s.most = append(s.asked, from), max(s.most, o.Limit)
	if o.ResourceVersion != "" {
		return nil, fmt.Errorf("version %q is asked for", o.ResourceVersion)
	}
	page := ctx.Value(inflowKey{}).(*inflow)
	page.began.Store(true)
	page.body.Add(s.comes)
	page.link.Add(s.comes)
	if s.fail != nil {
		if err := s.fail(from); err != nil {
			return nil, err
		}
	}
	list := &metav1.PartialObjectMetadataList{}
	to := s.objects
	if o.Limit > 0 {
		to = min(to, from+int(o.Limit))
	}
	for n := from; n < to; n++ {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint(n), Namespace: "default", ResourceVersion: "5", ManagedFields: []metav1.ManagedFieldsEntry{{}},
		}})
	}
	list.ResourceVersion = "10"
	if to < s.objects {
		list.Continue = fmt.Sprint(to)
	}
	return list, nil
}

func (s *shelf) reading() *reading {
	lw := &toolscache.ListWatch{
		ListWithContextFunc: s.list,
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.NewFake(), nil
		},
	}
	return newReading("Deployment", lw, trimListed(""), &atomic.Int64{}, false)
}

var rulesResource = schema.GroupResource{Group: ruleKind.Group, Resource: "prometheusrules"}

// expired is the answer to a continue token that etcd does not know any more.
func expired(from string) error {
	err := apierrors.NewResourceExpired("the provided continue parameter is too old")
	err.ErrStatus.Continue = from
	return err
}

// times returns an error so many times, for the page that begins there.
func times(n, from int, err error) func(int) error {
	return func(asked int) error {
		if asked != from || n == 0 {
			return nil
		}
		n--
		return err
	}
}

// after fails each page that begins at an index or later.
func after(from int, err error) func(int) error {
	return func(asked int) error {
		if asked < from {
			return nil
		}
		return err
	}
}

func TestPages(t *testing.T) {
	reset := errors.New("connection reset by peer")
	for name, tc := range map[string]struct {
		objects int
		fail    func(int) error
		asked   []int
		err     string
		takes   time.Duration
	}{
		"none":            {asked: []int{0}},
		"one page":        {objects: 100, asked: []int{0}},
		"several":         {objects: 1300, asked: []int{0, 100, 300, 700, 1200}},
		"a page fails":    {objects: 700, fail: times(2, 100, reset), asked: []int{0, 100, 100, 100, 150, 250, 450}, takes: 3 * time.Second},
		"it is throttled": {objects: 700, fail: times(1, 100, apierrors.NewTooManyRequestsError("later")), asked: []int{0, 100, 100, 200, 400}, takes: time.Second},
		"it fails for a minute": {
			objects: 700, fail: times(-1, 100, apierrors.NewInternalError(reset)), err: "Internal error", takes: time.Minute,
			asked: []int{0, 100},
		},
		"the first page fails": {objects: 700, fail: times(-1, 0, reset), asked: []int{0}, err: "reset"},
		"it is refused":        {objects: 700, fail: times(-1, 100, apierrors.NewForbidden(rulesResource, "", reset)), asked: []int{0, 100}, err: "forbidden"},
		"it is too slow":       {objects: 700, fail: times(-1, 100, &slowError{window: stallWindow}), asked: []int{0, 100}, err: "fewer than 1000"},
		"etcd was compacted":   {objects: 700, fail: times(1, 100, expired("101")), asked: []int{0, 100, 101, 201, 401}},
		"and does not go on":   {objects: 700, fail: times(1, 100, expired("")), asked: []int{0, 100}, err: "too old"},
		"and not there":        {objects: 700, fail: times(-1, 100, expired("100")), asked: []int{0, 100}, err: "too old"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{objects: tc.objects, fail: tc.fail, comes: 400_000}
				r := s.reading()
				began := time.Now()
				list, err := r.list(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 500})
				if took := time.Since(began); took < tc.takes*9/10 || took > tc.takes*3/2 {
					t.Errorf("it took %v", took)
				}
				if tc.takes == time.Minute {
					s.asked = slices.Compact(s.asked)
				}
				if !slices.Equal(s.asked, tc.asked) {
					t.Errorf("asked for %v, want %v", s.asked, tc.asked)
				}
				if s.most > mostPage {
					t.Errorf("asked for %d objects", s.most)
				}
				if tc.err != "" {
					if err == nil || !strings.Contains(err.Error(), tc.err) {
						t.Errorf("got %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				listed(t, list, s.asked, tc.objects)
			})
		})
	}
}

// listed checks that a list is complete and has only the kept fields.
func listed(t *testing.T, list kruntime.Object, asked []int, objects int) {
	t.Helper()
	names := map[string]bool{}
	err := meta.EachListItem(list, func(o kruntime.Object) error {
		item, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		if names[item.GetName()] = true; item.GetManagedFields() != nil {
			t.Error("the managed fields are kept")
		}
		return nil
	})
	if slices.Contains(asked, 101) {
		objects-- // that one was lost by the compaction
	}
	m, ok := list.(metav1.ListMetaAccessor)
	if err != nil || len(names) != objects || !ok || m.GetListMeta().GetResourceVersion() != "10" || m.GetListMeta().GetContinue() != "" {
		t.Errorf("got %d objects, %v", len(names), err)
	}
}

// A list takes as long as its bytes need, and no page is requested twice, over any link that is alive.
// kube-apiserver ends an answer after a minute.
func TestPagesOverLinks(t *testing.T) {
	const object, wait, most = 1600, 20 * time.Millisecond, time.Minute
	for name, tc := range map[string]struct {
		objects, rate int
		// plain answers are not compressed, and told that they are not asked to be.
		plain, told bool
		again       int // pages that are asked for again
		requests    int // at most
	}{
		"fast":                             {objects: 5000, rate: 100e6, requests: 12},
		"100 KB/s":                         {objects: 5000, rate: 100_000, requests: 12},
		"20 KB/s":                          {objects: 500, rate: 20_000, requests: 3},
		"3 KB/s":                           {objects: 5000, rate: 3000, requests: 50},
		"100 KB/s, plain":                  {objects: 5000, rate: 100_000, plain: true, told: true, requests: 30},
		"20 KB/s, plain":                   {objects: 500, rate: 20_000, plain: true, told: true, requests: 12},
		"5 KB/s, plain":                    {objects: 500, rate: 5000, plain: true, told: true, requests: 20},
		"1 KB/s, plain":                    {objects: 500, rate: 1000, plain: true, told: true, requests: 20},
		"3 KB/s, plain, and nobody knows":  {objects: 500, rate: 3000, plain: true, requests: 20},
		"1 KB/s, plain, and nobody knows":  {objects: 500, rate: 1000, plain: true, again: 2, requests: 23},
		"20 KB/s, plain, and nobody knows": {objects: 500, rate: 20_000, plain: true, requests: 12},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, asked, sent := &shelf{objects: tc.objects}, map[string]int{}, 0
				r := s.reading()
				r = newReading(r.kind, r.inner, r.trim, r.link, tc.told)
				r.inner = &toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
					asked[o.Continue]++
					list, err := s.list(ctx, o)
					if err != nil {
						return nil, err
					}
					bytes := meta.LenList(list) * object
					page, carried := ctx.Value(inflowKey{}).(*inflow), bytes
					if !tc.plain && bytes >= 128<<10 {
						carried = bytes / 15
						page.compressed.Store(true)
					}
					took := wait + time.Duration(carried)*time.Second/time.Duration(tc.rate)
					page.body.Add(int64(bytes))
					if took > most {
						sent += tc.rate * int(most/time.Second)
						time.Sleep(most) //nolint:forbidigo // of the bubble's clock
						return nil, errors.New("stream error")
					}
					sent += carried
					time.Sleep(took) //nolint:forbidigo // of the bubble's clock
					return list, nil
				}}
				began := time.Now()
				if _, err := r.list(t.Context(), metav1.ListOptions{}); err != nil && tc.again == 0 {
					t.Fatal(err)
				}
				for i := 0; i < 3 && len(asked) == 1; i++ { // as the informer does when the first page fails
					_, _ = r.list(t.Context(), metav1.ListOptions{})
				}
				took, requests, again := time.Since(began), 0, 0
				for _, n := range asked {
					requests, again = requests+n, again+n-1
				}
				needed := time.Duration(sent) * time.Second / time.Duration(tc.rate)
				t.Logf("%d requests, %d KB, %v, of which the bytes need %v", requests, sent/1000, took, needed)
				if again != tc.again || requests > tc.requests || took > needed*3/2+time.Duration(requests)*wait {
					t.Errorf("%d pages were asked for again, of %d", again, requests)
				}
			})
		})
	}
}

// An endless list does not exhaust the operator's memory.
func TestPagesWithoutAnEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		limits Limits
		says   string
	}{
		"objects": {Limits{Objects: 1000}, "the spoke holds too many Deployments: 1,200 objects; the limit is 1,000 (chart value spokeLimits.objects, --spoke-max-objects)"},
		"memory":  {Limits{Memory: 500_000}, "the cache of the spoke is too large: 856,"},
	} {
		t.Run(name, func(t *testing.T) {
			var told []error
			s := &shelf{objects: 100_000, comes: 1000}
			r := s.reading()
			r.bounds = &listBounds{holdings: &holdings{limits: tc.limits, tell: func(e *TooLargeError) { told = append(told, e) }}}
			_, err := r.list(t.Context(), metav1.ListOptions{})
			if !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v", err)
			}
			if len(told) != 1 || !strings.Contains(told[0].Error(), tc.says) {
				t.Errorf("it told %v", told)
			}
			if len(s.asked) > 4 {
				t.Errorf("it read on: %v", s.asked)
			}
			if len(r.bounds.lists) > 0 {
				t.Error("the list counts after its end")
			}
		})
	}
}

// A token that is longer than those of API servers is not sent back, which would take several times its memory.
func TestLongTokens(t *testing.T) {
	long := strings.Repeat("%", maxToken+1)
	for name, tc := range map[string]struct {
		answer func() (kruntime.Object, error)
		told   int
	}{
		"of a page": {func() (kruntime.Object, error) {
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: long}, Items: make([]metav1.PartialObjectMetadata, 1)}, nil
		}, 1},
		"of a list that expired": {func() (kruntime.Object, error) {
			err := apierrors.NewResourceExpired("too old")
			err.ErrStatus.Continue = long
			return nil, err
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var told []*TooLargeError
			asked := 0
			r := (&shelf{}).reading()
			r.bounds = &listBounds{holdings: &holdings{tell: func(e *TooLargeError) { told = append(told, e) }}}
			r.inner = &toolscache.ListWatch{ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (kruntime.Object, error) {
				asked++
				if asked == 1 && tc.told == 0 {
					return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: "a"}, Items: make([]metav1.PartialObjectMetadata, 1)}, nil
				}
				if len(o.Continue) > 1 {
					t.Errorf("it is sent back")
				}
				return tc.answer()
			}}
			if _, err := r.list(t.Context(), metav1.ListOptions{}); err == nil || len(err.Error()) > 1000 {
				t.Errorf("got %.100v", err)
			}
			if len(told) != tc.told || asked != 2-tc.told {
				t.Errorf("told %v, asked %d times", told, asked)
			}
		})
	}
}

// A page that is too large is requested again with fewer objects at once. A single object that is too large
// ends the list, which is reported to the connection.
func TestPagesThatAreTooLarge(t *testing.T) {
	for name, fits := range map[string]int64{"250": 250, "25": 25, "1": 1, "none": 0} {
		t.Run(name, func(t *testing.T) {
			var asked []int64
			told := 0
			s := &shelf{objects: 60, comes: 1000}
			r := s.reading()
			r.bounds = &listBounds{holdings: &holdings{tell: func(*TooLargeError) { told++ }}}
			r.inner = &toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
				if asked = append(asked, o.Limit); len(asked) > 200 {
					return nil, errors.New("it is asked for without an end")
				}
				if min(o.Limit, 60) > fits {
					ctx.Value(inflowKey{}).(*inflow).body.Add(1000)
					return nil, &TooLargeError{Bound: 1, Value: 2, part: o.Limit != 1}
				}
				return s.list(ctx, o)
			}}
			list, err := r.list(t.Context(), metav1.ListOptions{})
			if fits == 0 {
				if !errors.Is(err, errTooLarge) || told != 1 || len(asked) > 5 {
					t.Errorf("got %v, told %d times, asked for %v", err, told, asked)
				}
				return
			}
			if n := meta.LenList(list); err != nil || n != 60 || told != 0 || len(asked) > 150 {
				t.Errorf("got %d objects, %v, told %d times, asked for %v", n, err, told, asked)
			}
		})
	}
}

// Fields that are not cached are dropped page by page, not at the end of the list: otherwise a spoke with many
// large objects would take a multiple of the memory.
func TestPagesAreTrimmed(t *testing.T) {
	large := strings.Repeat("x", 10*maxAnnotation)
	own, foreign := monitoringv1.PrometheusRule{}, monitoringv1.PrometheusRule{}
	own.Name, own.Labels = "own", map[string]string{v1alpha1.HubLabel: "hub"}
	foreign.Name, foreign.Annotations = "foreign", map[string]string{"a": large}
	own.Spec.Groups = []monitoringv1.RuleGroup{{Name: large}}
	foreign.Spec = own.Spec
	deployment := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "d", Annotations: map[string]string{"a": large, "kubectl.kubernetes.io/x": large}}}
	for name, tc := range map[string]struct {
		page kruntime.Object
		kept string // the names of those that keep their spec
	}{
		"metadata": {page: &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{deployment}}},
		"rules":    {page: &monitoringv1.PrometheusRuleList{Items: []monitoringv1.PrometheusRule{own, foreign}}, kept: "own"},
	} {
		t.Run(name, func(t *testing.T) {
			r := (&shelf{}).reading()
			r.trim = trimListed("hub")
			r.inner = &toolscache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (kruntime.Object, error) { return tc.page, nil }}
			list, err := r.try(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			kept := ""
			_ = meta.EachListItem(list, func(o kruntime.Object) error {
				if m, err := meta.Accessor(o); err != nil || m.GetName() == "" || len(m.GetAnnotations()["a"]) > maxAnnotation || len(m.GetAnnotations()) > 1 {
					t.Errorf("it keeps %v", m)
				}
				if rule, ok := o.(*monitoringv1.PrometheusRule); ok && len(rule.Spec.Groups) > 0 {
					kept += rule.Name
				}
				return nil
			})
			if kept != tc.kept {
				t.Errorf("%q keep their specs", kept)
			}
		})
	}
}

// A spoke with empty pages, or with continue tokens that keep expiring, is not asked as fast as it answers.
func TestPagesThatDoNotGetOn(t *testing.T) {
	for name, answer := range map[string]func(asked int) (kruntime.Object, error){
		"empty pages": func(asked int) (kruntime.Object, error) {
			return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: strconv.Itoa(asked)}}, nil
		},
		"expired tokens": func(asked int) (kruntime.Object, error) { return nil, expired(strconv.Itoa(asked)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				r := (&shelf{}).reading()
				r.inner = &toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
					asked++
					if asked > 1000 {
						return nil, errors.New("enough")
					}
					if o.Continue == "" {
						return (&shelf{objects: 700}).list(ctx, o)
					}
					return answer(asked)
				}}
				if _, err := r.list(t.Context(), metav1.ListOptions{}); err == nil || asked > 20 {
					t.Errorf("asked %d times: %v", asked, err)
				}
			})
		})
	}
}

// A spoke that keeps failing in the middle of its list is given up, although the beginning is answered each
// time; one that makes progress is not.
func TestReadingIsLost(t *testing.T) {
	gvk := WorkloadMetadata(v1alpha1.DeploymentKind).GroupVersionKind()
	for name, tc := range map[string]struct {
		fail func(from int) error
		wait time.Duration // of each page
		lost time.Duration // 0 is never
		slow bool
		// refused means that the cause is the answer of the spoke.
		refused bool
	}{
		"all is well":          {},
		"slow pages":           {wait: 50 * time.Second},
		"slower pages":         {wait: 80 * time.Second},
		"nothing works":        {fail: times(-1, 0, errors.New("cut")), lost: syncTimeout},
		"it does not get on":   {fail: after(leastPage, errors.New("cut")), lost: syncTimeout},
		"it is slow":           {fail: after(leastPage, &slowError{window: stallWindow}), lost: 2 * paceBeat, slow: true},
		"once in a while":      {fail: every(3, errors.New("cut"))},
		"the account may not":  {fail: times(-1, 0, apierrors.NewForbidden(rulesResource, "", nil)), lost: refusedTimeout, refused: true},
		"the account may late": {fail: times(2, 0, apierrors.NewForbidden(rulesResource, "", nil)), wait: 4 * time.Second},
		"the account soon may": {fail: times(3, 0, apierrors.NewForbidden(rulesResource, "", nil))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{objects: 2000, comes: 500_000}
				s.fail = func(from int) error {
					time.Sleep(tc.wait) //nolint:forbidigo // of the bubble's clock
					if tc.fail == nil {
						return nil
					}
					return tc.fail(from)
				}
				rs, r := newReadings(), s.reading()
				rs.kinds[gvk] = r
				stopped, stop := context.WithCancel(t.Context())
				informer := newInformer(r.pages(), &metav1.PartialObjectMetadata{}, 0, toolscache.Indexers{})
				done := make(chan struct{})
				go func() { informer.RunWithContext(stopped); close(done) }()
				ctx, cancel := rs.bound(t.Context(), gvk)
				began := time.Now()
				synced := toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
				took := time.Since(began)
				if synced != (tc.lost == 0) || (!synced && ((took < tc.lost/2 && !tc.slow) || took > tc.lost+15*time.Second)) {
					t.Errorf("synced: %v, after %v", synced, took)
				}
				cause := context.Cause(ctx)
				if _, slow := errors.AsType[*slowError](cause); slow != tc.slow || apierrors.IsForbidden(cause) != tc.refused || (!synced && !tc.refused && !errors.Is(cause, context.DeadlineExceeded)) {
					t.Errorf("the cause is %v", cause)
				}
				if synced && len(informer.GetStore().List()) != 2000 {
					t.Errorf("there are %d", len(informer.GetStore().List()))
				}
				cancel()
				stop()
				<-done
			})
		})
	}
}

// Reading the beginning of a list again is not progress.
func TestReadingTheSameAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := (&shelf{objects: 700, fail: times(-1, 100, apierrors.NewForbidden(rulesResource, "", nil))}).reading()
		for began := time.Now(); time.Since(began) <= syncTimeout; {
			if err := r.lost(); err != nil {
				t.Errorf("it is lost after %v: %v", time.Since(began), err)
			}
			if _, err := r.list(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("got %v", err)
			}
			time.Sleep(11 * time.Second) //nolint:forbidigo // of the bubble's clock
		}
		if r.lost() == nil {
			t.Error("it is not lost")
		}
	})
}

// every returns an error for each nth request.
func every(n int, err error) func(int) error {
	count := 0
	return func(int) error {
		count++
		if count%n == 0 {
			return err
		}
		return nil
	}
}

// Progress is shown at most once in ten seconds.
func TestTellProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewProvider(Options{})
		c := &connection{name: "s", p: p, reads: newReadings(), received: &atomic.Int64{}}
		p.entries["s"] = &entry{pending: &registration{conn: c}}
		var shown []string
		p.changes.Listen(func(c change) {
			if f := p.Observation(c.spoke).Connected; f.Status != metav1.ConditionUnknown || f.Reason != v1alpha1.ReasonConnecting {
				t.Errorf("it shows %+v", f)
			}
			shown = append(shown, p.Observation(c.spoke).Connected.Message)
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.tellProgress(ctx); close(done) }()
		pass := func(bytes int64) { c.received.Add(bytes); time.Sleep(progressShown); synctest.Wait() } //nolint:forbidigo // of the bubble's clock
		pass(1 << 20)                                                                                   // nothing is read yet
		r := &reading{kind: "Deployment", link: c.received, from: c.received.Load()}
		c.reads.last = r
		r.objects = 1500
		pass(2_130_000)
		r.objects = 1501
		pass(9999) // that is too slow for life
		r.objects = 2000
		pass(10_000)
		cancel()
		<-done
		if !slices.Equal(shown, []string{"listing Deployments: 1,500 so far, 2.1 MB", "listing Deployments: 2,000 so far, 2.1 MB"}) {
			t.Errorf("it shows %q", shown)
		}
		p.entries["s"].spoke = &Spoke{Name: "s"}
		c.p.connecting(c, Finding{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonConnecting, Message: "again"})
		if len(shown) != 2 {
			t.Error("it shows that of a spoke that is served")
		}
	})
}

// A list that will renew the cache fails again and again, because another server answers it. The session ends, because
// its cache is outdated. Failures of the API server and of the link show otherwise.
func TestUnusableLists(t *testing.T) {
	garbage := errors.New("couldn't get version/kind")
	for name, tc := range map[string]struct {
		code  int
		body  io.Reader
		ended bool
	}{
		"another server":            {200, strings.NewReader("<html>"), true},
		"the API server refuses":    {500, strings.NewReader("no"), false},
		"the answer ends too early": {200, io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				works := false
				lw := &toolscache.ListWatch{ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (kruntime.Object, error) {
					if works {
						return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
					}
					next := paced{roundTrip(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: tc.code, Header: http.Header{}, Body: io.NopCloser(tc.body)}, nil
					})}
					resp, err := next.RoundTrip(get(ctx, t, "https://spoke/apis/apps/v1/deployments"))
					if err != nil {
						t.Error(err)
						return nil, err
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					return nil, garbage
				}}
				r := newReading("Deployment", lw, func(kruntime.Object) error { return nil }, &atomic.Int64{}, false)
				rs := &readings{kinds: map[schema.GroupVersionKind]*reading{{Kind: "Deployment"}: r}}
				expect := func(when string, ended bool) {
					t.Helper()
					if _, err := r.list(t.Context(), metav1.ListOptions{}); !errors.Is(err, garbage) {
						t.Errorf("%s: got %v", when, err)
					}
					if err := rs.stuck(); (err != nil) != ended || ended && (!errors.Is(err, errNotKubernetes) || !strings.Contains(err.Error(), garbage.Error())) {
						t.Errorf("%s: the session ends with %v", when, err)
					}
				}
				expect("at first", false)
				time.Sleep(pageStuck - time.Second) //nolint:forbidigo // of the bubble's clock
				expect("soon", false)
				time.Sleep(2 * time.Second) //nolint:forbidigo // of the bubble's clock
				expect("later", tc.ended)
				works = true
				if _, err := r.list(t.Context(), metav1.ListOptions{}); err != nil || rs.stuck() != nil {
					t.Errorf("when it works again: %v, %v", err, rs.stuck())
				}
			})
		})
	}
}
