package simulated

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resource is a kind of objects.
type resource int

const (
	namespaces resource = iota
	deployments
	// Only their metadata is read, and they have no objects.
	statefulSets
	daemonSets
	cronJobs

	prometheusRules
	// prometheuses and thanosRulers have no objects.
	prometheuses
	thanosRulers
	resources
)

// mostEvents is how many events of a resource are kept for watches, at most.
const mostEvents = 1000

// mostLists is how many lists can be continued at a time.
const mostLists = 8

// Spoke is a simulated cluster.
type Spoke struct {
	server *Server
	name   string

	mu sync.Mutex
	// version is that of the latest write, as of the whole etcd.
	version int64
	kinds   [resources]*kind
}

// kind has the objects of a resource.
type kind struct {
	// objects are sorted by key. A write replaces the slice.
	objects []*object
	// events are the latest ones. dropped is the version of the last one that is no longer kept.
	events  []event
	dropped int64
	// news is closed when an event follows.
	news chan struct{}
	// lists are the objects of lists that can be continued, the oldest first.
	lists []snapshot
}

// snapshot has the objects as of a version.
type snapshot struct {
	version int64
	objects []*object
}

// event is a change of an object.
type event struct {
	kind   string // ADDED, MODIFIED or DELETED
	object *object
}

// object is an object, which is never changed. A Deployment and a namespace are a template with a name: only the
// differences are held.
type object struct {
	namespace, name string
	uid             string
	version         int64
	created         time.Time
	// written is the time of the latest write, and by is the field manager.
	written time.Time
	by      string
	// annotations and generation are those of a Deployment.
	annotations map[string]string
	generation  int64
	// json is the whole content of a PrometheusRule.
	json []byte
}

// key is that of the object in etcd.
func (o *object) key() string { return keyOf(o.namespace, o.name) }

func keyOf(namespace, name string) string {
	if namespace == "" {
		return "/" + name
	}
	return "/" + namespace + "/" + name
}

func newSpoke(server *Server, name string) *Spoke {
	s := &Spoke{server: server, name: name}
	for i := range s.kinds {
		s.kinds[i] = &kind{news: make(chan struct{})}
	}
	for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespacePublic, "kube-node-lease", metav1.NamespaceDefault} {
		s.put(namespaces, &object{name: namespace, by: "kube-apiserver"})
	}
	return s
}

// FieldManager is the field manager of the objects that a test adds.
const FieldManager = "test"

// AddNamespace adds a namespace.
func (s *Spoke) AddNamespace(name string) { s.put(namespaces, &object{name: name, by: FieldManager}) }

// AddDeployment adds a Deployment to a namespace, with its name as label app.
func (s *Spoke) AddDeployment(namespace, name string) {
	s.put(deployments, &object{namespace: namespace, name: name, by: FieldManager, generation: 1})
}

// AnnotateDeployment changes the annotations of a Deployment.
func (s *Spoke) AnnotateDeployment(namespace, name string, annotations map[string]string) {
	s.put(deployments, &object{namespace: namespace, name: name, by: FieldManager, annotations: annotations, generation: 1})
}

// DeleteDeployment deletes a Deployment if it exists.
func (s *Spoke) DeleteDeployment(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(deployments, keyOf(namespace, name))
}

// Count returns the number of PrometheusRules.
func (s *Spoke) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kinds[prometheusRules].objects)
}

func (s *Spoke) put(r resource, o *object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.getLocked(r, o.key()); was != nil {
		o.uid, o.created, o.generation = was.uid, was.created, was.generation+1
	}
	s.stampLocked(o)
	s.putLocked(r, o)
}

// stampLocked gives an object the next version, and a UID if it has none.
func (s *Spoke) stampLocked(o *object) {
	s.version++
	now := time.Now()
	o.version, o.written = s.version, now
	if o.uid == "" {
		o.created = now
		o.uid = uidOf(s.name, s.version)
	}
}

// uidOf returns a UID that no other object has.
func uidOf(spoke string, version int64) string {
	h := fmt.Sprintf("%x", sha256.Sum256([]byte(spoke+"/"+strconv.FormatInt(version, 10))))
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-8" + h[17:20] + "-" + h[20:32]
}

// search returns where an object is, or would be.
func (k *kind) search(key string) (int, bool) {
	return slices.BinarySearchFunc(k.objects, key, func(o *object, key string) int { return strings.Compare(o.key(), key) })
}

// getLocked returns an object, or nil.
func (s *Spoke) getLocked(r resource, key string) *object {
	k := s.kinds[r]
	if i, ok := k.search(key); ok {
		return k.objects[i]
	}
	return nil
}

// putLocked stores an object that has its version.
func (s *Spoke) putLocked(r resource, o *object) {
	k := s.kinds[r]
	i, exists := k.search(o.key())
	change, end := "ADDED", i
	if exists {
		change, end = "MODIFIED", i+1
	}
	k.objects = slices.Concat(k.objects[:i], []*object{o}, k.objects[end:])
	k.tell(event{change, o})
}

// removeLocked deletes an object if it exists.
func (s *Spoke) removeLocked(r resource, key string) {
	k := s.kinds[r]
	i, ok := k.search(key)
	if !ok {
		return
	}
	s.version++
	last := k.objects[i].at(s.version)
	k.objects = slices.Concat(k.objects[:i], k.objects[i+1:])
	k.tell(event{"DELETED", last})
}

// tell passes an event to watches.
func (k *kind) tell(e event) {
	k.events = append(k.events, e)
	if len(k.events) > mostEvents {
		n := mostEvents / 2 // the rest is copied only now and then
		k.dropped = k.events[n-1].object.version
		k.events = slices.Clone(k.events[n:])
	}
	close(k.news)
	k.news = make(chan struct{})
}
