package join

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// TestChooseCredential renews tokens of each kind, with and without the flags.
func TestChooseCredential(t *testing.T) {
	const account = `"sub":"system:serviceaccount:rulefleet-system:rulefleet-spoke"`
	jwt := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte("{"+claims+"}")) + ".c2ln"
	}
	static, day := jwt(`"iss":"kubernetes/serviceaccount",`+account), jwt(account+`,"iat":1000,"exp":87400`)
	for _, tc := range []struct {
		name, present, auth string
		duration            time.Duration // 0 if the flag is not set
		wantAuth            string
		want                time.Duration // 0 means that it does not matter
		err                 string
	}{
		{name: "a new spoke", wantAuth: authToken, want: defaultDuration},
		{name: "a new spoke, static", auth: authStatic, wantAuth: authStatic},
		{name: "static and a duration", auth: authStatic, duration: time.Hour, err: "the token does not expire"},
		{name: "a token", present: day, wantAuth: authToken, want: 24 * time.Hour},
		{name: "a token, another duration", present: day, duration: time.Hour, wantAuth: authToken, want: time.Hour},
		{name: "a token becomes static", present: day, auth: authStatic, wantAuth: authStatic},
		{name: "static", present: static, wantAuth: authStatic},
		{name: "static becomes a token", present: static, auth: authToken, wantAuth: authToken, want: defaultDuration},
		{name: "static becomes a token with a duration", present: static, auth: authToken, duration: time.Hour, wantAuth: authToken, want: time.Hour},
		{name: "static, and only a duration", present: static, duration: time.Hour, err: "the token does not expire"},
		{name: "a token without its time of issue", present: jwt(account + `,"exp":87400`), wantAuth: authToken, want: defaultDuration},
		{name: "a token of nonsense", present: jwt(account + `,"iat":87400,"exp":1`), wantAuth: authToken, want: defaultDuration},
		{name: "a token of a person", present: jwt(`"sub":"jane"`), wantAuth: authToken, want: defaultDuration},
		{name: "an opaque token", present: "secret", wantAuth: authToken, want: defaultDuration},
		{name: "a token that is no JWT", present: "a.b.c", wantAuth: authToken, want: defaultDuration},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var kubeconfig []byte
			if tc.present != "" {
				var err error
				if kubeconfig, err = (endpoint{server: "https://eu-1.example.com"}).kubeconfig(tc.present); err != nil {
					t.Fatal(err)
				}
			}
			j := &joining{options: &options{auth: tc.auth, duration: tc.duration}}
			err := j.chooseCredential(kubeconfig)
			if tc.err != "" {
				if code, _ := exit.Of(err); code != exit.Usage || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%d %v", code, err)
				}
				return
			}
			if err != nil || j.auth != tc.wantAuth || tc.want != 0 && j.duration != tc.want {
				t.Errorf("%v: %s for %v, want %s for %v", err, j.auth, j.duration, tc.wantAuth, tc.want)
			}
		})
	}
}

// TestPermitGrants has people who may write ClusterRoles, and may grant what is in them or not.
func TestPermitGrants(t *testing.T) {
	objects, _, err := accessObjects()
	if err != nil {
		t.Fatal(err)
	}
	granted, err := cluster.Grants(objects)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		denied []string // verbs
		want   string
	}{
		{"everything", nil, ""},
		{"escalate and bind", []string{"get", "delete"}, ""},
		{"each permission of the account", []string{"escalate", "bind"}, ""},
		{"only escalate", []string{"delete", "bind"}, "delete prometheusrules.monitoring.coreos.com"},
		{"only bind", []string{"delete", "escalate"}, "delete prometheusrules.monitoring.coreos.com"},
		{"neither", []string{"delete", "escalate", "bind"}, "delete prometheusrules.monitoring.coreos.com"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			funcs := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				review := o.(*authorizationv1.SelfSubjectAccessReview)
				review.Status.Allowed = !slices.Contains(tc.denied, review.Spec.ResourceAttributes.Verb)
				return nil
			}}
			err := permitGrants(t.Context(), fake.NewClientBuilder().WithScheme(cluster.Scheme).WithInterceptorFuncs(funcs).Build(), "in the spoke", granted)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if code, _ := exit.Of(err); code != exit.Denied || err.Error() != "you lack permissions in the spoke: "+tc.want {
				t.Errorf("%d %v", code, err)
			}
		})
	}
}
