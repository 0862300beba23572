// Package spoke connects the hub to its spokes: it turns a kubeconfig into an engaged spoke.
//
//	Provider.Register ──connection──► Engage
//
// Provider is the multicluster.Provider: for each spoke, one goroutine opens the connection, engages the spoke with
// the controllers and monitors its health. It knows which spoke is which cluster. A breaker keeps requests from a spoke
// that does not answer. No code here holds a lock while it waits for a spoke.
package spoke
