// Package membership decides which clusters are members of the fleet.
//
//	Secret ──Reconciler──► SpokeCluster, spoke.Provider.Register
//
// The Reconciler keeps a SpokeCluster for every registered Secret, hands the kubeconfig to the spoke.Provider, and
// shows in the status what all others know of the spoke: its connection, its permissions and objects, its evaluators,
// held deletions, failing rules and contested writes. It also handles the departure of a spoke.
package membership
