// Package spoke connects the hub to its spokes: it turns a registered Secret into an engaged spoke.
//
//	Secret ──Registrar──► SpokeCluster, Provider.Register ──connection──► Engage
//
// Registrar reconciles the Secrets. It keeps one SpokeCluster for each and writes its status. Provider is the
// multicluster.Provider: for each spoke, one goroutine opens the connection, engages the spoke with the
// controllers and monitors its health. Breaker and Queue keep a bad spoke from delaying others. No code here
// holds a lock while it waits for a spoke.
package spoke
