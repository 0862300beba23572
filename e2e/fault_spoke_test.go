package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/plugin/why"
	"github.com/rulefleet/rulefleet/pkg/testing/fleet"
)

// TestFaultSpokes breaks the spokes and their registrations.
func TestFaultSpokes(t *testing.T) {
	parallel(t) // fault tests mostly wait
	ready, others := []string{"frozen", "killed", "granted", "token", "moved"}, []string{"other"}
	if testing.Short() {
		ready, others = []string{"killed"}, nil
	}
	f := startFaulty(t, fleet.Options{Spokes: append(others, ready...)})
	if !testing.Short() {
		_, err := f.StartSpoke(t.Context(), "bare")
		must(t, err)
	}
	f.manage(t)
	places := map[string]*place{}
	if f.Spoke("bare") != nil {
		places["bare"] = f.place(t, "bare")
	}
	for _, name := range ready {
		places[name] = f.place(t, name)
		if name == "token" {
			places[name].kubeconfig = places[name].account(t, "first")
		}
		places[name].register(t)
	}
	for _, name := range ready {
		places[name].settle(t)
	}
	f.measure(t)
	f.lanes(t, places, map[string]func(at *place){
		"frozen": frozenRows, "killed": killedRows, "bare": bareRows, "granted": grantedRows, "token": tokenRows, "moved": movedRows,
	})
	places["killed"].t = t
	places["killed"].row("killed, and back after the manager was restarted", rowOptions{hubDown: true}, func(r *fault) {
		r.inject(func() { must(t, r.m.Kill()) }, func() { _ = r.m.Restart(context.WithoutCancel(t.Context())) })
		r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
		r.change()
		must(t, f.current().Stop())
		f.start(t)
		r.hold(20 * time.Second)
		r.expectOf(r.name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
		r.over()
	})
}

func frozenRows(at *place) {
	at.row("SIGSTOP for 2 minutes", rowOptions{}, func(r *fault) {
		r.inject(func() { must(r.t, r.m.Pause()) }, func() { _ = r.m.Resume() })
		r.change()
		r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
		r.hold(2 * time.Minute)
		r.over()
		r.changeSpoke()
	})
}

func killedRows(at *place) {
	at.row("SIGSTOP in the middle of a write", rowOptions{}, func(r *fault) {
		arrived, answered := make(chan struct{}), make(chan struct{})
		arrive, answer := sync.OnceFunc(func() { close(arrived) }), sync.OnceFunc(func() { close(answered) })
		h := serveHook(r.t, "stop", func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			arrive()
			<-answered
			return nil
		})
		r.t.Cleanup(answer)
		config := h.validating()
		h.install(r.t, r.m, config)
		r.change()
		select {
		case <-arrived:
		case <-time.After(patience):
			r.t.Fatal("the spoke was not asked to write anything")
		}
		r.inject(func() { must(r.t, r.m.Pause()) }, func() { _ = r.m.Resume(); answer() })
		r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
		r.hold(25 * time.Second)
		r.over()
		h.uninstall(r.t, r.m, config)
	})
	at.row("killed, and back", rowOptions{exemplary: true}, func(r *fault) {
		r.inject(func() { must(r.t, r.m.Kill()) }, func() { _ = r.m.Restart(context.WithoutCancel(r.t.Context())) })
		r.change()
		r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonUnreachable)
		r.hold(25 * time.Second)
		r.over()
		r.changeSpoke()
	})
}

func bareRows(at *place) {
	at.row("its CRD is absent at registration", rowOptions{unregistered: true}, func(r *fault) {
		r.inject(func() { r.register(r.t) }, func() {})
		r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonCRDMissing, "prometheusrules.monitoring.coreos.com")
		r.change()
		r.hold(10 * time.Second)
		r.mend("")
		r.over()
	})
	at.row("its CRD is deleted", rowOptions{rewritten: true}, func(r *fault) {
		install := func() { _ = r.InstallMonitoringCRD(context.WithoutCancel(r.t.Context()), r.m, "prometheusrules") }
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "prometheusrules.monitoring.coreos.com"}}
		r.inject(func() { must(r.t, r.m.Client.Delete(r.t.Context(), crd)) }, install)
		r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonCRDMissing)
		r.change()
		r.mend("")
		r.over()
	})
}

// grantedRows removes permissions. Another test checks each verb.
func grantedRows(at *place) {
	for _, c := range []struct{ group, resource, verb string }{
		{"apps", "deployments", "watch"}, {"monitoring.coreos.com", "prometheusrules", "update"}, {"", "namespaces", "list"},
	} {
		at.row("no longer allowed to "+c.verb+" "+c.resource, rowOptions{}, func(r *fault) {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fleet.SpokeUser}}
			must(r.t, read(r.t.Context(), r.m, client.ObjectKeyFromObject(role), role))
			all := role.DeepCopy().Rules
			r.inject(func() {
				update(r.t, r.m, role, func(role *rbacv1.ClusterRole) {
					for i, rule := range role.Rules {
						if slices.Contains(rule.APIGroups, c.group) && slices.Contains(rule.Resources, c.resource) {
							role.Rules[i].Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(verb string) bool { return verb == c.verb })
						}
					}
				})
			}, func() {
				role.Rules = all
				role.ResourceVersion = ""
				_ = r.m.Client.Update(context.WithoutCancel(r.t.Context()), role)
			})
			r.change()
			r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonForbidden, c.verb, c.resource)
			r.over()
			r.changeSpoke()
		})
	}
}

// account creates a ServiceAccount in the spoke with the operator's permissions, and returns a kubeconfig with
// its token.
func (at *place) account(t *testing.T, name string) []byte {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	must(t, at.m.Client.Create(t.Context(), sa))
	must(t, at.m.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "account-" + name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: sa.Namespace, Name: sa.Name}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: fleet.SpokeUser},
	}))
	request := &authenticationv1.TokenRequest{}
	must(t, at.m.Client.SubResource("token").Create(t.Context(), sa, request))
	at.canaries.add(request.Status.Token)
	cfg, err := clientcmd.Load(at.kubeconfig)
	must(t, err)
	for user := range cfg.AuthInfos {
		cfg.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	out, err := clientcmd.Write(*cfg)
	must(t, err)
	return out
}

func tokenRows(at *place) {
	at.row("the credential is revoked, and then rotated", rowOptions{}, func(r *fault) {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "first"}}
		r.inject(func() { must(r.t, r.m.Client.Delete(r.t.Context(), sa)) }, func() {})
		r.change()
		r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonAuthFailed)
		r.hold(25 * time.Second)
		at.kubeconfig = r.account(r.t, "second")
		r.register(r.t)
		r.over()
		r.changeSpoke()
	})
	at.row("garbage in place of a good kubeconfig", rowOptions{}, func(r *fault) {
		const canary = "canary-in-garbage"
		r.canaries.add(canary)
		garbage := []byte("{{ users:\n- token: " + canary + "\x00")
		r.inject(func() { r.put(r.t, r.name, garbage) }, func() {})
		r.expectCondition(v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonKubeconfigNotUsed, "last good kubeconfig", "is not valid YAML")
		r.step(r.untouched(), "connection", why.OK, v1alpha1.ReasonKubeconfigNotUsed, "correct the Secret", "kubectl rulefleet join")
		r.change()
		r.changeSpoke()
		// The last good kubeconfig is still in use.
		within(r.t, convergedWithin, "the spoke is served as before", r.converged)
		r.register(r.t)
		r.over()
	})
}

// rotations is the number of kubeconfig replacements.
const rotations = 500

// TestFaultRotations replaces the kubeconfigs of several spokes at a time, because a takeover mostly waits. No other row
// runs at the same time: when a spoke comes back, its goroutines would look like a leak.
func TestFaultRotations(t *testing.T) {
	long(t)
	parallel(t)
	names := []string{"rotated", "spun-1", "spun-2", "spun-3"}
	f := startFaulty(t, fleet.Options{Spokes: names})
	f.manage(t)
	places := f.served(t, names...)
	f.measure(t)
	places[0].row(strconv.Itoa(rotations)+" rotations", rowOptions{}, func(r *fault) {
		var rotated []*rotation
		for _, at := range places {
			rotated = append(rotated, at.rotation(r.t))
		}
		rotate := func(from, to int) {
			for i := from; i < to; i += len(rotated) {
				for _, x := range rotated {
					x.begin(r.t)
				}
				for _, x := range rotated {
					x.await(r.t)
				}
			}
		}
		var before map[string]float64
		r.inject(func() {
			rotate(0, rotations/10)
			before = r.usage()
			rotate(rotations/10, rotations)
		}, func() {})
		r.t.Logf("%d rotations took %s", rotations, seconds(time.Since(r.injected)))
		after := r.usage()
		for name, room := range map[string]float64{"go_goroutines": 40, "process_open_fds": 10, "process_resident_memory_bytes": 48 << 20} {
			r.t.Logf("%s: %.0f after %d rotations, %.0f after %d", name, before[name], rotations/10, after[name], rotations)
			if after[name] > before[name]+room {
				r.t.Errorf("%s has grown from %.0f to %.0f", name, before[name], after[name])
			}
		}
		for _, x := range rotated {
			if w := x.written(); len(w) > 0 {
				r.t.Errorf("a rotation is no change, and yet there were %d writes to %s: %v", len(w), x.name, w[0])
			}
		}
		r.change()
		r.over()
	})
}

// rotation replaces a place's kubeconfig by equivalent ones.
type rotation struct {
	*place
	users       []string
	kubeconfigs [][]byte
	done        int
	log         int64 // bytes of the manager's log that were read
	written     func() []string
}

// rotation creates users of the spoke with the operator's permissions.
func (at *place) rotation(t *testing.T) *rotation {
	t.Helper()
	x := &rotation{place: at, written: writes(t, at.m)}
	for i := range 4 {
		user := fmt.Sprintf("%s-%d", fleet.SpokeUser, i)
		must(t, at.m.Client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: fleet.SpokeUser},
		}))
		kubeconfig, err := at.m.UserKubeconfig(user)
		must(t, err)
		x.users, x.kubeconfigs = append(x.users, user), append(x.kubeconfigs, at.canaries.into(t, kubeconfig, at.name+user))
	}
	info, err := os.Stat(at.current().LogPath)
	must(t, err)
	x.log = info.Size()
	return x
}

func (x *rotation) begin(t *testing.T) {
	t.Helper()
	x.done++
	x.put(t, x.name, x.kubeconfigs[x.done%len(x.users)])
}

// await waits until the kubeconfig is in use: each connection logs that once, when the controllers use it.
func (x *rotation) await(t *testing.T) {
	t.Helper()
	said := fmt.Sprintf(`"msg":"spoke connected","cluster":%q`, x.name)
	within(t, patience, fmt.Sprintf("rotation %d of %s is taken over", x.done, x.name), func(context.Context) error {
		log, err := os.Open(x.current().LogPath)
		if err != nil {
			return err
		}
		defer func() { _ = log.Close() }()
		fresh, err := io.ReadAll(io.NewSectionReader(log, x.log, math.MaxInt64-x.log))
		if err != nil {
			return err
		}
		at := bytes.Index(fresh, []byte(said))
		if at < 0 {
			return errors.New("the manager does not say that it is connected")
		}
		x.log += int64(at + len(said))
		return nil
	})
}

// usage returns the manager's resource usage after ended connections were cleaned up.
func (r *fault) usage() map[string]float64 {
	r.t.Helper()
	pause(r.t, 5*time.Second)
	out := map[string]float64{}
	for _, name := range []string{"go_goroutines", "process_open_fds", "process_resident_memory_bytes"} {
		var err error
		out[name], err = metric(r.t.Context(), r.current(), name)
		must(r.t, err)
	}
	return out
}

func movedRows(at *place) {
	at.row("the same cluster is registered twice", rowOptions{}, func(r *fault) {
		rule := create(r.t, r.Hub, alertRule("twin-rule", r.name, onNamed("twin")))
		written := writes(r.t, r.m)
		twin := membership("twin")
		r.inject(func() { r.put(r.t, "twin", append([]byte("# again\n"), r.kubeconfig...)) }, func() {
			ctx := context.WithoutCancel(r.t.Context())
			_ = r.Hub.Client.Delete(ctx, registration("twin"))
			_ = r.Hub.Client.Delete(ctx, twin)
		})
		r.expectOf("twin", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDuplicateCluster, r.name)
		must(r.t, r.says(rule, "twin", v1alpha1.ReasonDuplicateCluster, "connection"))
		r.hold(10 * time.Second)
		if w := written(); len(w) > 0 {
			r.t.Errorf("the cluster was written to: %v", w)
		}
		r.change()
		r.mend("")
		r.over()
	})
	at.row("its Secret leads to another cluster", rowOptions{}, func(r *fault) {
		other := r.Spoke("other")
		r.plantForeign(r.t, other)
		kubeconfig, err := other.UserKubeconfig(fleet.SpokeUser)
		must(r.t, err)
		identity := &corev1.Namespace{}
		must(r.t, read(r.t.Context(), other, client.ObjectKey{Name: metav1.NamespaceSystem}, identity))
		here, there := writes(r.t, r.m), writes(r.t, other)
		r.inject(func() { r.put(r.t, r.name, r.canaries.into(r.t, kubeconfig, "other")) }, func() {})
		r.expectShown(metav1.ConditionFalse, v1alpha1.ReasonIdentityChanged, v1alpha1.AcceptIdentityAnnotation, string(identity.UID))
		r.change()
		r.hold(15 * time.Second)
		if w := append(here(), there()...); len(w) > 0 {
			r.t.Errorf("one of the two clusters was written to: %s", strings.Join(w, ", "))
		}
		r.register(r.t)
		r.over()
		if err := r.foreignUntouched(r.t.Context(), other, false); err != nil {
			r.t.Errorf("what is not ours was touched: %v", err)
		}
	})
}
