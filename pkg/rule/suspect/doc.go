// Package suspect says whether the removal of an object may be due to objects that were lost and created
// again. Such a removal waits for a person.
package suspect
