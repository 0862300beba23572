// Package queue shares the workers of a controller among the spokes, so that a spoke that is slow or does not answer
// delays no other. A Queue is a priority queue whose keys wait in lanes: by spoke, by namespace of the spoke, and by
// namespace of the hub. How many keys of a lane may be in flight follows the answers of the spoke.
package queue
