package continuity

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pulse is an object that is written all the time, such as a Lease. A restore brings back an older version of it, even
// if all other objects are as they were, and the resourceVersions of all kinds have passed the former ones: because few
// writes were lost, or because the backup was restored with higher ones (etcdutl snapshot restore --bump-revision).
type pulse struct {
	history history
	read    func(context.Context) (resourceVersion string, err error)
}

// Follow makes the guard compare the versions of one object that is written all the time. read reads it, bypassing all
// caches; its error is that of the API server. The guard reads the object before it passes on a list of a kind that
// was listed before, because that list may lack objects that only the restore has removed.
//
// The caller reports its own reads and writes of the object: it calls reading before each, and then the function that
// reading returns, with the resourceVersion of the answer.
func (g *Guard) Follow(kind string, read func(context.Context) (resourceVersion string, err error)) (reading func() func(resourceVersion string)) {
	p := &pulse{history: history{kind: kind}, read: read}
	g.pulse.Store(p)
	return func() func(string) {
		floor := p.history.floor()
		return func(resourceVersion string) { g.found(p.history.read(floor, resourceVersion)) }
	}
}

// feel compares the followed object with its last known version. The error says that this was not possible. An object
// that is gone shows nothing: somebody may have deleted it.
func (g *Guard) feel(ctx context.Context) error {
	p := g.pulse.Load()
	if p == nil {
		return nil
	}
	floor := p.history.floor()
	if floor == "" {
		return nil // this process knows no version yet
	}
	ctx, cancel := g.bound(ctx)
	defer cancel()
	switch version, err := p.read(ctx); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading a %s to check whether the etcd of the cluster was restored: %w", p.history.kind, err)
	default:
		g.found(p.history.read(floor, version))
	}
	return nil
}
