package dashboard

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

var epoch = time.Unix(1700000000, 0)

// answer is that of a Prometheus with two spokes, one of which is not ready.
func answer(w http.ResponseWriter, r *http.Request) {
	query, metric := r.FormValue("query"), `"cluster":"eu-1","reason":"Unreachable <>","phase":"Applied","pod":"rulefleet-0"`
	switch {
	case strings.Contains(query, "$"), strings.HasSuffix(r.FormValue("step"), "s"):
		http.Error(w, `{"status":"error","error":"a variable is left"}`, http.StatusBadRequest)
	case strings.Contains(query, "rulefleet_alerts"):
		_, _ = fmt.Fprint(w, `{"status":"success","data":{"result":[]}}`)
	case strings.HasSuffix(r.URL.Path, "query_range"):
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{%s},"values":[[%d,"1"],[%d,"NaN"],[%d,"3"]]},{"metric":{"phase":"Pending"},"values":[[%d,"2"]]}]}}`,
			metric, epoch.Unix(), epoch.Unix()+1, epoch.Unix()+30, epoch.Unix())
	default:
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{%s},"value":[%d,"0.0421"]}]}}`, metric, epoch.Unix())
	}
}

func TestDraw(t *testing.T) {
	source, err := os.ReadFile("../../../charts/rulefleet/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(answer))
	defer server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Dashboard: source, Rows: []string{"Overview", "Rules", "Evaluation"}, Prometheus: address, From: epoch, To: epoch.Add(time.Minute)}
	picture, err := Draw(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(picture))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("it is not XML: %v", err)
		}
	}
	for _, want := range []string{">Propagation p99<", ">42.1 ms<", ">rulefleet-0<", ">Rules that are not ready, by spoke<", "Unreachable &lt;&gt;", ">Applied", ">Pending<", ">No data<"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("it lacks %s", want)
		}
	}
	if strings.Contains(string(picture), "Spokes by condition Ready") {
		t.Error("it has a panel of a row that is not wanted")
	}
	if strings.Contains(string(picture), "NaN") {
		t.Error("what is no number is drawn")
	}
	o.Rows = []string{"Owerview"}
	if _, err := Draw(t.Context(), o); err == nil || !strings.Contains(err.Error(), "Owerview") {
		t.Errorf("a row that is not there: %v", err)
	}
	server.Close()
	o.Rows = []string{"Overview"}
	if _, err := Draw(t.Context(), o); err == nil {
		t.Error("no Prometheus answers, and it draws")
	}
}
