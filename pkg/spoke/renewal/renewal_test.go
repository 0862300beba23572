package renewal

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rulefleet/rulefleet/api/v1alpha1"
	"github.com/rulefleet/rulefleet/pkg/spoke/kubeconfig"
)

var issued = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// claims are those of a token of the account.
func claims(from time.Time, life time.Duration, binding string) string {
	return fmt.Sprintf(`{"iat":%d,"exp":%d,"kubernetes.io":{"namespace":"rulefleet-system","serviceaccount":{"name":"rulefleet-spoke"}%s}}`,
		from.Unix(), from.Add(life).Unix(), binding)
}

const bound = `,"secret":{"name":"tokens","uid":"u"}`

func jwt(claims string) string {
	enc := base64.RawURLEncoding.EncodeToString
	return enc([]byte(`{"alg":"RS256"}`)) + "." + enc([]byte(claims)) + ".c2ln"
}

func kubeconfigWith(user string) []byte {
	return fmt.Appendf(nil, `{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://eu-1.example.com:6443"}}],"users":[{"name":"u","user":{%s}}]}`, user)
}

func entry(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}
}

const (
	ownsLabels = `{"f:metadata":{"f:labels":{"f:env":{}}},"f:type":{}}`
	ownsData   = `{"f:data":{".":{},"f:kubeconfig":{}}}`
	ownsOther  = `{"f:data":{"f:other":{}}}`
)

// joined is the Secret of a spoke as join has made it.
func joined(name, user string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "rulefleet-system", Name: name,
		Labels:      map[string]string{v1alpha1.RegistrationLabel: "true"},
		Annotations: map[string]string{v1alpha1.RenewTokenAnnotation: "true"},
	}}
	s.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("rulefleet-register", metav1.ManagedFieldsOperationApply, ownsLabels),
		entry(v1alpha1.CredentialManager, metav1.ManagedFieldsOperationApply, ownsData),
	}
	s.Data = map[string][]byte{v1alpha1.KubeconfigKey: kubeconfigWith(user)}
	return s
}

func withToken(name string, life time.Duration) *corev1.Secret {
	return joined(name, `"token":"`+jwt(claims(issued, life, bound))+`"`)
}

func TestDecide(t *testing.T) {
	const life = 900 * time.Second
	for name, tc := range map[string]struct {
		change func(s *corev1.Secret)
		never  bool
		flaw   string
	}{
		"joined":               {change: func(*corev1.Secret) {}},
		"another key is owned": {change: func(s *corev1.Secret) { s.ManagedFields = append(s.ManagedFields, entry("x", "Update", ownsOther)) }},
		"a status is owned": {change: func(s *corev1.Secret) {
			e := entry("x", "Update", ownsData)
			e.Subresource = "status"
			s.ManagedFields = append(s.ManagedFields, e)
		}},
		"without the annotation":   {never: true, change: func(s *corev1.Secret) { s.Annotations = nil }},
		"with another value":       {never: true, change: func(s *corev1.Secret) { s.Annotations[v1alpha1.RenewTokenAnnotation] = "false" }},
		"not registered":           {never: true, change: func(s *corev1.Secret) { s.Labels = nil }},
		"being deleted":            {never: true, change: func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: issued} }},
		"another owner, too":       {never: true, change: func(s *corev1.Secret) { s.ManagedFields = append(s.ManagedFields, entry("x", "Apply", ownsData)) }},
		"another owner":            {never: true, change: func(s *corev1.Secret) { s.ManagedFields[1].Manager = "x" }},
		"our name, but an update":  {never: true, change: func(s *corev1.Secret) { s.ManagedFields[1].Operation = "Update" }},
		"nobody owns it":           {never: true, change: func(s *corev1.Secret) { s.ManagedFields = nil }},
		"fields that are not JSON": {never: true, change: func(s *corev1.Secret) { s.ManagedFields = append(s.ManagedFields, entry("x", "Apply", "{")) }},
		"no kubeconfig":            {never: true, change: func(s *corev1.Secret) { s.Data = nil }},
		"a client certificate": {never: true, change: func(s *corev1.Secret) {
			s.Data = joined("s", `"client-certificate-data":"eA==","client-key-data":"eA=="`).Data
		}},
		"a certificate and a token": {never: true, change: func(s *corev1.Secret) {
			s.Data = joined("s", `"token":"`+jwt(claims(issued, life, bound))+`","client-certificate-data":"eA==","client-key-data":"eA=="`).Data
		}},
		"a password":      {never: true, change: func(s *corev1.Secret) { s.Data = joined("s", `"username":"u","password":"p"`).Data }},
		"an opaque token": {never: true, change: func(s *corev1.Secret) { s.Data = joined("s", `"token":"x"`).Data }},
		"a token without an end": {never: true, change: func(s *corev1.Secret) {
			s.Data = joined("s", `"token":"`+jwt(`{"kubernetes.io":{"namespace":"n","serviceaccount":{"name":"a"}}}`)+`"`).Data
		}},
		"a token of a person": {never: true, change: func(s *corev1.Secret) {
			s.Data = joined("s", `"token":"`+jwt(`{"iat":1,"exp":9,"sub":"jane"}`)+`"`).Data
		}},
		"without a time of issue": {never: true, change: func(s *corev1.Secret) {
			s.Data = joined("s", `"token":"`+jwt(strings.Replace(claims(issued, life, bound), `"iat"`, `"x"`, 1))+`"`).Data
		}},
		"a token that is not bound": {flaw: "not bound", change: func(s *corev1.Secret) { s.Data = joined("s", `"token":"`+jwt(claims(issued, life, ""))+`"`).Data }},
		"a path in place of a name": {flaw: "not valid", change: func(s *corev1.Secret) {
			s.Data = joined("s", `"token":"`+jwt(claims(issued, life, `,"secret":{"name":"../x","uid":"u"}`))+`"`).Data
		}},
		"a kubeconfig of many nodes": {never: true, change: func(s *corev1.Secret) { s.Data[v1alpha1.KubeconfigKey] = []byte(strings.Repeat("- ", 100_000)) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := withToken("s", life)
			tc.change(s)
			p := Decide(s, 1)
			switch {
			case tc.never:
				if p != (Plan{}) {
					t.Errorf("%+v", p)
				}
			case p.Flaw != "" && tc.flaw == "", !strings.Contains(p.Flaw, tc.flaw):
				t.Errorf("the flaw is %q", p.Flaw)
			case p.Life != life, !p.Expires.Equal(issued.Add(life)), p.Bound.Account != "rulefleet-spoke", p.Bound.Namespace != "rulefleet-system", p.Seconds() != 900:
				t.Errorf("%+v", p)
			case p.Due.After(issued.Add(600 * time.Second)), p.Due.Before(issued.Add(570 * time.Second)):
				t.Errorf("due %s after it was issued", p.Due.Sub(issued))
			}
		})
	}
	if p := Decide(withToken("s", 300*time.Second), 1); p.Seconds() != 600 {
		t.Errorf("%d seconds are requested, and the API server grants no less than 600", p.Seconds())
	}
}

// The third counts from what the spoke has granted, for any life. Every manager decides alike.
func TestDueIsAThirdBeforeTheEnd(t *testing.T) {
	for _, life := range []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour} {
		p := Decide(withToken("eu-1", life), 1)
		left := float64(p.Expires.Sub(p.Due)) / float64(life)
		if left < 1.0/3-0.001 || left > 1.0/3+2.0/3*spread {
			t.Errorf("%s: renewed when %.3f of it is left", life, left)
		}
		if again := Decide(withToken("eu-1", life), 1); again != p {
			t.Errorf("%s: %+v, and then %+v", life, p, again)
		}
		if third := (kubeconfig.Credential{Issued: issued, Expires: issued.Add(life)}).Renewal(); p.Due.After(third) {
			t.Errorf("%s: the status warns before the renewal", life)
		}
	}
}

// 500 spokes that were registered in one minute are renewed over more than half an hour, evenly.
func TestRenewalsAreSpread(t *testing.T) {
	perMinute := map[time.Time]int{}
	for i := range 500 {
		p := Decide(withToken(fmt.Sprintf("spoke-%d", i), 24*time.Hour), 1)
		perMinute[p.Due.Truncate(time.Minute)]++
	}
	most := 0
	for _, n := range perMinute {
		most = max(most, n)
	}
	if len(perMinute) < 40 || most > 30 {
		t.Errorf("they are renewed in %d minutes, up to %d in one", len(perMinute), most)
	}
}

func TestDelay(t *testing.T) {
	const year = 365 * 24 * time.Hour
	var all []time.Duration
	for n := 1; n <= 30; n++ {
		d := Delay("eu-1", n, year)
		if d < firstDelay/2 || d > maxDelay {
			t.Errorf("after %d failures: %s", n, d)
		}
		all = append(all, d)
	}
	if all[0] > firstDelay || all[29] < maxDelay/2 {
		t.Errorf("the delays are %v", all)
	}
	// The shortest token that a spoke can grant is tried at least 10 times before it ends.
	left, tries := 200*time.Second, 0
	for ; left > 0; tries++ {
		left -= Delay("eu-1", tries+1, 10*time.Minute)
	}
	if tries < 10 || tries > 60 {
		t.Errorf("%d attempts in the last third of 10 minutes", tries)
	}
	if Delay("a", 3, year) == Delay("b", 3, year) {
		t.Error("two spokes try at the same time")
	}
}

func TestRenewed(t *testing.T) {
	const life = time.Hour
	now := issued.Add(40 * time.Minute)
	good := jwt(claims(now, life, bound))
	for name, tc := range map[string]struct{ token, err string }{
		"a new token":          {token: good},
		"granted for less":     {token: jwt(claims(now, 30*time.Minute, bound))},
		"nothing":              {token: "", err: "a valid token"},
		"two lines":            {token: good + "\nx", err: "a valid token"},
		"opaque":               {token: "opaque", err: "not granted a token of a ServiceAccount"},
		"longer than allowed":  {token: good + strings.Repeat("x", 17<<10), err: "not granted a token of a ServiceAccount"},
		"not bound":            {token: jwt(claims(now, life, "")), err: "not bound to the same Secret"},
		"bound to another one": {token: jwt(claims(now, life, `,"secret":{"name":"tokens","uid":"v"}`)), err: "not bound to the same Secret"},
		"no later end":         {token: jwt(claims(issued, life, bound)), err: "does not expire later"},
		"without an end":       {token: jwt(`{"iat":1,"kubernetes.io":{"namespace":"rulefleet-system","serviceaccount":{"name":"rulefleet-spoke"},"secret":{"name":"tokens","uid":"u"}}}`), err: "does not say for how long it is valid"},
		"for 10 minutes":       {token: jwt(claims(now.Add(12*time.Minute), 10*time.Minute, bound))},
		"for less":             {token: jwt(claims(now.Add(12*time.Minute), 10*time.Minute-time.Second, bound)), err: "valid for less than 10m0s"},
		"due at once":          {token: jwt(claims(issued.Add(-time.Hour), 2*time.Hour+time.Minute, bound)), err: "compare the clocks"},
	} {
		t.Run(name, func(t *testing.T) {
			s := withToken("s", life)
			before := slices.Clone(s.Data[v1alpha1.KubeconfigKey])
			after, err := Decide(s, 1).Renewed(s, tc.token, now, 1)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || tc.token != "" && strings.Contains(err.Error(), tc.token) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || !kubeconfig.SameButToken(before, after) || !strings.Contains(string(after), tc.token) {
				t.Errorf("%v: %s", err, after)
			}
			if !slices.Equal(before, s.Data[v1alpha1.KubeconfigKey]) {
				t.Error("the Secret was changed in place")
			}
		})
	}
}

// A cache keeps only what OtherOwner needs.
func TestTrim(t *testing.T) {
	s := withToken("s", time.Hour)
	s.ManagedFields = append(s.ManagedFields, entry("external-secrets", "Update", ownsData))
	if _, err := Trim(s); err != nil || len(s.ManagedFields) != 2 || OtherOwner(s) != "external-secrets" {
		t.Errorf("%v: %+v", err, s.ManagedFields)
	}
	s.Annotations = nil
	if _, err := Trim(s); err != nil || len(s.ManagedFields) != 0 {
		t.Errorf("%v: %+v", err, s.ManagedFields)
	}
	if o, err := Trim("x"); err != nil || o != "x" {
		t.Errorf("%v %v", o, err)
	}
}
