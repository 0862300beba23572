// Package spoke is step (0) of the data flow: it turns a registered Secret into an
// engaged spoke.
//
//	Secret ──Registrar──► SpokeCluster, Provider.Register ──connection──► Engage
//
// Registrar reconciles the Secrets, keeps one SpokeCluster for each and writes its
// status. Provider is the multicluster.Provider: one goroutine per spoke opens the
// connection, engages the spoke with the controllers and watches over its health.
// Breaker and Queue keep one bad spoke from delaying another. Nothing here holds a
// lock while it waits on a spoke.
package spoke
