package join

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rulefleet/rulefleet/pkg/plugin/cluster"
	"github.com/rulefleet/rulefleet/pkg/plugin/exit"
)

// The values of --auth.
const (
	authToken  = "token"
	authStatic = "static"
)

const (
	// minDuration is the shortest token that the API server grants.
	minDuration = 10 * time.Minute
	// defaultDuration is that of the token of a new spoke.
	defaultDuration = 365 * 24 * time.Hour
	// credentialTimeout is how long the spoke may take to fill a Secret with a token, and to grant new rights.
	credentialTimeout = 30 * time.Second
)

// chooseCredential decides which token to request. Without the flags, a renewal requests a token like the present one: to
// replace a token that does not expire by one that does, or by a shorter one, would disconnect the spoke later.
func (j *joining) chooseCredential(kubeconfig []byte) error {
	auth, duration := tokenOf(kubeconfig)
	if j.auth == "" {
		j.auth = auth
	}
	if j.auth == authStatic {
		if j.duration != 0 {
			return exit.New(exit.Usage, "To use a token that expires: --auth token", "--duration %v cannot be set: the token does not expire (--auth static)", j.duration)
		}
		return nil
	}
	if j.duration == 0 {
		j.duration = duration
	}
	return nil
}

// tokenOf returns the kind of the token of a ServiceAccount in a kubeconfig, and how long it was valid when it was granted.
// It returns the defaults if there is no such token. The signature does not matter: this only decides what to request.
func tokenOf(kubeconfig []byte) (auth string, duration time.Duration) {
	var claims struct {
		Subject string `json:"sub"`
		Expires int64  `json:"exp"`
		Issued  int64  `json:"iat"`
	}
	if parts := strings.Split(bearer(kubeconfig), "."); len(parts) == 3 {
		if payload, err := base64.RawURLEncoding.DecodeString(parts[1]); err != nil || json.Unmarshal(payload, &claims) != nil {
			return authToken, defaultDuration
		}
	}
	if !strings.HasPrefix(claims.Subject, "system:serviceaccount:") {
		return authToken, defaultDuration
	}
	if claims.Expires == 0 {
		return authStatic, defaultDuration
	}
	if valid := time.Duration(claims.Expires-claims.Issued) * time.Second; claims.Issued != 0 && valid >= minDuration {
		return authToken, valid
	}
	return authToken, defaultDuration
}

// bearer returns the token in a kubeconfig, if it has one.
func bearer(kubeconfig []byte) string {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return ""
	}
	selected := config.Contexts[config.CurrentContext]
	if selected == nil || config.AuthInfos[selected.AuthInfo] == nil {
		return ""
	}
	return config.AuthInfos[selected.AuthInfo].Token
}

// credential returns a token of the account, and when it expires, in words.
func (j *joining) credential(ctx context.Context) (token, expires string, err error) {
	if j.auth == authStatic {
		token, err = j.static(ctx)
		return token, "that does not expire", err
	}
	bound := boundTo()
	if err := j.put(ctx, j.spoke.Client, bound); err != nil {
		return "", "", err
	}
	if err := j.spoke.Client.Get(ctx, client.ObjectKeyFromObject(bound), bound); err != nil {
		return "", "", fmt.Errorf("reading Secret %s/%s in the spoke: %w", bound.Namespace, bound.Name, err)
	}
	seconds := int64(j.duration.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: bound.Name, UID: bound.UID},
	}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: account}}
	if err := j.spoke.Client.SubResource("token").Create(ctx, sa, request); err != nil {
		return "", "", fmt.Errorf("requesting a token in the spoke: %w", err)
	}
	return request.Status.Token, "valid until " + request.Status.ExpirationTimestamp.UTC().Format(time.RFC3339), nil
}

func (j *joining) static(ctx context.Context) (string, error) {
	if err := j.put(ctx, j.spoke.Client, staticToken()); err != nil {
		return "", err
	}
	var s corev1.Secret
	err := wait.PollUntilContextTimeout(ctx, time.Second/5, credentialTimeout, true, func(ctx context.Context) (bool, error) {
		if err := j.spoke.Client.Get(ctx, client.ObjectKeyFromObject(staticToken()), &s); err != nil {
			return false, fmt.Errorf("reading the token in the spoke: %w", err)
		}
		return len(s.Data[corev1.ServiceAccountTokenKey]) > 0, nil
	})
	if wait.Interrupted(err) {
		return "", exit.New(exit.NotReady, "Check that kube-controller-manager runs in the spoke, or use --auth token.",
			"the spoke has not filled Secret %s/%s with a token within %v", s.Namespace, s.Name, credentialTimeout)
	}
	return string(s.Data[corev1.ServiceAccountTokenKey]), err
}

// verify uses a client with the new token, so that the hub does not get one that does not work. The API server needs a
// moment to notice new grants.
func verify(ctx context.Context, c client.Client, rights []cluster.Right, timeout time.Duration) error {
	err := wait.PollUntilContextTimeout(ctx, time.Second/5, timeout, true, func(ctx context.Context) (bool, error) {
		lacking, err := cluster.Lacking(ctx, c, rights)
		if err == nil {
			rights = lacking
		}
		return err == nil && len(lacking) == 0, err
	})
	if wait.Interrupted(err) {
		return exit.New(exit.NotReady, "Look at ClusterRole "+account+" and its binding in the spoke, and at other authorizers there.",
			"the account in the spoke lacks permissions: %s", cluster.Words(rights))
	}
	if err != nil {
		return fmt.Errorf("using the new token in the spoke: %w", err)
	}
	return nil
}
