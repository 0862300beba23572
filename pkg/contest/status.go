package contest

import (
	"encoding/json"
	"fmt"
	"regexp"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// timesInStatus matches the times in an encoded status. They differ each time that a status is derived.
var timesInStatus = regexp.MustCompile(`"[A-Za-z]*Time":"[^"]*"`)

// OfStatus is the write of an object's status. The intention is the status without its times, of this object and not
// of a former one with the same name.
func OfStatus(kind string, o client.Object, status any) Write {
	data, err := json.Marshal(status)
	if err != nil { // the API's types can't fail
		panic(fmt.Sprintf("contest: encoding the status of %s %s: %v", kind, client.ObjectKeyFromObject(o), err))
	}
	return Write{
		Object: Object{Kind: kind, NamespacedName: client.ObjectKeyFromObject(o), Status: true},
		Meant:  string(o.GetUID()) + string(timesInStatus.ReplaceAll(data, nil)),
		Base:   o.GetResourceVersion(),
	}
}
