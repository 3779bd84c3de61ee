// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
)

// flavorStore is an API database with a flavor and nothing else.
type flavorStore struct{ apidb.Store }

func (flavorStore) Flavor(_ context.Context, id string) (apidb.Flavor, error) {
	if id != "1" {
		return apidb.Flavor{}, apidb.ErrNotFound
	}
	return apidb.Flavor{Flavor: cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 1, RootGB: 1}},
		IsPublic: true}, nil
}

func (flavorStore) Cells(context.Context) ([]apidb.Cell, error) { return nil, nil }

func (flavorStore) Quotas(context.Context, string) (apidb.QuotaSet, error) { return nil, nil }

// FuzzCreate sends anything to POST /servers, in any microversion: it is booted or refused, never
// an error of the service, and what is booted is within bounds.
func FuzzCreate(f *testing.F) {
	const none = `"name":"n1","imageRef":"` + image + `","flavorRef":1,"networks":"none"`
	for _, seed := range []string{
		`{"server":{` + none + `}}`, `{"server":{` + none +
			`,"min_count":"2","max_count":3.0,"availability_zone":"a:b:c"}}`,
		`{"server":{` + none +
			`,"metadata":{"a":"b"},"tags":["x"],"user_data":"====","config_drive":"NO","accessIPv6":"fe80::1%eth0"}}`,
		`{"server":{` + none + `},"os:scheduler_hints":{"group":null}}`, `{"server":{` +
			none + `,"security_groups":[{}]}}`,
		`{"server":{` + none + `,"name":"\ud800\u0000'\"","description":"x"}}`,
		`{"server":{"networks":[{"port":null}],"name":1e999}}`,
		``, `null`, `[]`, `{"server":null}`, `{"server":{}}`, "\xff", strings.Repeat("[", 200),
		`{"server":{"name":"a","name":"b"}}`, `{} {}`,
	} {
		for _, version := range []uint8{1, 19, 32, 36, 37, 57, 69} {
			f.Add(seed, version)
		}
	}
	f.Fuzz(func(t *testing.T, body string, version uint8) {
		boots := &fakeScheduler{}
		service := New(Config{
			Store: flavorStore{}, Scheduler: boots, Quota: &fakeQuotas{store: flavorStore{}},
			Auth:     osapi.Fixed{Principal: osapi.Principal{User: "u", Project: "p1", Roles: []string{"admin"}}},
			Gatherer: gather.New(gather.Options{Logger: zerolog.Nop()}), Logger: zerolog.Nop(),
		})
		r := httptest.NewRequest(http.MethodPost, "http://compute/v2.1/servers", strings.NewReader(body))
		r.Header.Set("OpenStack-API-Version", "compute "+(api.Version(version)%api.MaxVersion+1).String())
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge:
			if len(boots.asked) > 0 {
				t.Errorf("%d, and it was booted", w.Code)
			}
		case http.StatusAccepted:
			if asked := boots.asked[0]; asked.Min < 1 ||
				asked.Max < asked.Min || asked.Max > 1000 || asked.Name == "" || asked.Flavor.ID != "1" ||
				len(asked.Hostname) > 2*63 {
				t.Errorf("booted: %+v", asked)
			}
		default:
			t.Errorf("POST /servers: got %d %s", w.Code, w.Body)
		}
	})
}
