package simulated

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The forms in which a client wants objects.
const (
	whole = iota + 1
	partial
)

// formOf returns the form that a request accepts; 0 for one that is not simulated. list is the form of a list.
func formOf(r *http.Request, list bool) int {
	const metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	wanted := metadata
	if list {
		wanted = strings.Replace(metadata, "Metadata", "MetadataList", 1)
	}
	switch r.Header.Get("Accept") {
	case wanted:
		return partial
	case "application/json", "application/json, */*":
		return whole
	}
	return 0
}

// collection serves lists and watches of a resource.
func collection(of resource) handler {
	return func(s *Spoke, w http.ResponseWriter, r *http.Request) bool {
		query := r.URL.Query()
		if query.Get("watch") == "true" {
			return s.watch(w, r, of, query)
		}
		return s.list(w, r, of, query)
	}
}

// only reports whether a query has no other parameters than these.
func only(query url.Values, names ...string) bool {
	for name := range query {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

// listOptions are the options of a list that are simulated.
type listOptions struct {
	limit int
	from  *continuation
	// cached asks for all objects at any version (resourceVersion=0).
	cached bool
}

// continuation is the token for the rest of a list.
type continuation struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	// Start is the key to begin with.
	Start string `json:"start"`
}

// listOptionsOf reads a query. It returns false for one that is not simulated.
func listOptionsOf(query url.Values) (o listOptions, ok bool) {
	if !only(query, "limit", "continue", "resourceVersion") {
		return o, false
	}
	var err error
	if text := query.Get("limit"); text != "" {
		if o.limit, err = strconv.Atoi(text); err != nil || o.limit < 1 {
			return o, false
		}
	}
	switch query.Get("resourceVersion") {
	case "":
	case "0":
		o.cached = true
	default:
		return o, false
	}
	if text := query.Get("continue"); text != "" {
		o.from = &continuation{}
		token, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || json.Unmarshal(token, o.from) != nil {
			return o, false
		}
	}
	return o, true
}

// page is a part of a list.
type page struct {
	metav1.ListMeta

	objects []*object
}

func (s *Spoke) list(w http.ResponseWriter, r *http.Request, of resource, query url.Values) bool {
	o, ok := listOptionsOf(query)
	form := formOf(r, true)
	if !ok || form == 0 || form == whole && of < prometheusRules || form == partial && of > prometheusRules {
		return false
	}
	if o.limit != 1 && of <= prometheusRules {
		s.server.pages.Add(1)
	}
	p, err := s.page(of, o)
	if err != nil {
		refuse(w, r, err)
		return true
	}
	if form == partial {
		answer(w, r, http.StatusOK, encoded(partialList(of, p)))
		return true
	}
	answer(w, r, http.StatusOK, wholeList(of, p))
	return true
}

// page returns a page of a list.
func (s *Spoke) page(of resource, o listOptions) (p page, refusal *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, version := s.kinds[of], s.version
	objects := k.objects
	switch {
	case o.from != nil:
		i := slices.IndexFunc(k.lists, func(l snapshot) bool { return l.version == o.from.Revision })
		if i < 0 {
			return p, expiredList()
		}
		version, objects = k.lists[i].version, k.lists[i].objects
	case o.cached:
		o.limit = 0
	}
	rest := objects
	if o.from != nil {
		begin, _ := slices.BinarySearchFunc(objects, o.from.Start, func(o *object, key string) int { return strings.Compare(o.key(), key) })
		rest = objects[begin:]
	}
	p.ResourceVersion, p.objects = strconv.FormatInt(version, 10), rest
	if o.limit > 0 && len(rest) > o.limit {
		p.objects = rest[:o.limit]
		left := int64(len(rest) - o.limit)
		p.RemainingItemCount = &left
		token := encoded(continuation{"meta.k8s.io/v1", version, p.objects[o.limit-1].key() + "\x00"})
		p.Continue = base64.RawURLEncoding.EncodeToString(bytes.TrimSuffix(token, []byte("\n")))
		k.keep(snapshot{version, objects})
	}
	return p, nil
}

// keep keeps the objects of a list that may be continued.
func (k *kind) keep(l snapshot) {
	if slices.ContainsFunc(k.lists, func(kept snapshot) bool { return kept.version == l.version }) {
		return
	}
	if k.lists = append(k.lists, l); len(k.lists) > mostLists {
		k.lists = slices.Delete(k.lists, 0, 1)
	}
}

// partialList has the metadata of the objects of a page.
func partialList(of resource, p page) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: p.ListMeta,
	}
	for _, o := range p.objects {
		list.Items = append(list.Items, o.partial(of))
	}
	return list
}

// wholeList returns the encoded list of custom resources.
func wholeList(of resource, p page) []byte {
	kinds := map[resource]string{prometheusRules: ruleKind, prometheuses: "Prometheus", thanosRulers: "ThanosRuler"}
	metadata := map[string]any{"continue": p.Continue, "resourceVersion": p.ResourceVersion}
	if p.RemainingItemCount != nil {
		metadata["remainingItemCount"] = *p.RemainingItemCount
	}
	items := make([]json.RawMessage, 0, len(p.objects))
	for _, o := range p.objects {
		items = append(items, o.json)
	}
	return encoded(map[string]any{"apiVersion": ruleVersion, "kind": kinds[of] + "List", "metadata": metadata, "items": items})
}

func getNamespace(s *Spoke, w http.ResponseWriter, r *http.Request) bool {
	return s.get(w, r, namespaces, whole, func(o *object) any {
		return map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": o.partial(namespaces).ObjectMeta,
			"spec": map[string]any{"finalizers": []string{"kubernetes"}}, "status": map[string]any{"phase": "Active"},
		}
	})
}

func getDeployment(s *Spoke, w http.ResponseWriter, r *http.Request) bool {
	s.server.gets.Add(1)
	return s.get(w, r, deployments, partial, func(o *object) any { return o.partial(deployments) })
}

// get answers with one object in the only form that is simulated.
func (s *Spoke) get(w http.ResponseWriter, r *http.Request, of resource, form int, content func(*object) any) bool {
	if formOf(r, false) != form || len(r.URL.Query()) > 0 {
		return false
	}
	s.mu.Lock()
	o := s.getLocked(of, keyOf(r.PathValue("namespace"), r.PathValue("name")))
	s.mu.Unlock()
	if o == nil {
		refuse(w, r, notFound(of, r.PathValue("name")))
		return true
	}
	answer(w, r, http.StatusOK, encoded(content(o)))
	return true
}
