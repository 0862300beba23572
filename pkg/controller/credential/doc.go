// Package credential renews the tokens of spokes that kubectl rulefleet join has registered. pkg/spoke/renewal decides
// when; the Secret of the spoke is the only state. It writes only the kubeconfig in such a Secret.
package credential
