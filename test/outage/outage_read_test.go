// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outageLane are the reads while cell1 is killed. Project p1 has servers everywhere, p2 in cell2
// only, p3 in cell1 only.
var outageLane = lane{build: outageWorld, cases: []aCase{
	{1, "list", func(t *testing.T, w *world) {
		a := w.api.get(t, of("p1"), "2.69", "/servers")
		w.lists(t, a, everything...)
		for _, s := range a.servers(t) {
			if isUnknown(s) && !slices.Equal(keys(s), []string{"id", "links", "status"}) {
				t.Errorf("an UNKNOWN record has the keys %v", keys(s))
			}
		}
		w.golden(t, "01-list-2.69", a)
	}},
	{2, "list_before_2.69", func(t *testing.T, w *world) {
		for _, version := range []string{"2.1", "2.68"} {
			w.lists(t, w.api.get(t, of("p1"), version, "/servers"), reachable...)
		}
		w.golden(t, "02-list-2.68", w.api.get(t, of("p1"), "2.68", "/servers"))
	}},
	{3, "detail", func(t *testing.T, w *world) {
		a := w.api.get(t, of("p1"), "2.69", "/servers/detail")
		w.lists(t, a, everything...)
		for _, s := range a.servers(t) {
			if isUnknown(s) && !slices.Equal(keys(s), []string{"created", "id", "links", "status", "tenant_id"}) {
				t.Errorf("an UNKNOWN record has the keys %v", keys(s))
			}
		}
		w.golden(t, "03-detail-2.69", a)
	}},
	{4, "detail_before_2.69", func(t *testing.T, w *world) {
		a := w.api.get(t, of("p1"), "2.68", "/servers/detail")
		w.lists(t, a, reachable...)
		w.golden(t, "04-detail-2.68", a)
		a = w.api.get(t, adminOf("p1"), "2.1", "/servers/detail")
		w.lists(t, a, reachable...)
		w.golden(t, "04-detail-2.1-admin", a)
	}},
	{5, "show", func(t *testing.T, w *world) {
		a := w.show(t, of("p1"), "2.69", "web1")
		if s := a.server(t); len(s) != 10 || s["OS-EXT-STS:power_state"] != 0.0 {
			t.Errorf("%d keys, power state %v: %v", len(s), s["OS-EXT-STS:power_state"], s)
		}
		w.golden(t, "05-show-2.69", a)
		if s := w.show(t, of("p1"), "2.71", "web1").server(t); len(s) != 11 || len(s["server_groups"].([]any)) != 0 {
			t.Errorf("%d keys: %v", len(s), s)
		}
		w.show(t, of("p1"), "2.72", "web1").fault(t, "computeFault", 406) // 2.71 is the last version here
	}},
	{6, "show_before_2.69", func(t *testing.T, w *world) {
		for _, version := range []string{"2.1", "2.68"} {
			a := w.show(t, of("p1"), version, "web1")
			if m := a.fault(t, "computeFault", 500); !strings.Contains(m, "NovaException") {
				t.Errorf("the message is %q", m)
			}
			w.golden(t, "06-show-2.68", a)
		}
	}},
	{7, "show_of_what_is_not_known", func(t *testing.T, w *world) {
		for _, c := range []struct{ server, zone, user string }{
			{"web1", "UNKNOWN", "u-p1"}, {"zoned", "nova", "u-p1"}, {"diskonly", "UNKNOWN", "u-p1"}, {"nouser", "UNKNOWN", "UNKNOWN"},
		} {
			s := w.show(t, of("p1"), "2.69", c.server).server(t)
			if s["OS-EXT-AZ:availability_zone"] != c.zone || s["user_id"] != c.user || (s["image"].(record)["id"] == "no-image") != (c.server == "diskonly") || len(s) != 10 {
				t.Errorf("%s: %v", c.server, s)
			}
		}
		w.golden(t, "07-show-no-image", w.show(t, of("p1"), "2.69", "diskonly"))
		w.golden(t, "07-show-nouser", w.show(t, of("p1"), "2.69", "nouser"))
	}},
	{8, "show_of_deleted", func(t *testing.T, w *world) {
		for _, name := range []string{"soft1", "gone1"} {
			w.golden(t, "08-show-"+name, w.show(t, of("p1"), "2.69", name).status(t, 404))
			w.show(t, of("p1"), "2.68", name).fault(t, "computeFault", 500)
		}
		if s := w.show(t, of("p1"), "2.69", "soft2").server(t); s["status"] != "SOFT_DELETED" {
			t.Errorf("soft2 is %v", s["status"])
		}
		w.show(t, of("p1"), "2.69", "gone2").fault(t, "itemNotFound", 404)
	}},
	{9, "show_without_request_spec", func(t *testing.T, w *world) {
		w.show(t, of("p1"), "2.69", "nospec").fault(t, "itemNotFound", 404)
		w.show(t, of("p1"), "2.68", "nospec").fault(t, "computeFault", 500)
		if all := w.named(t, w.api.get(t, of("p1"), "2.69", "/servers").servers(t)); !slices.Contains(all, "nospec?") {
			t.Errorf("it is not in the list: %v", all)
		}
	}},
	{10, "show_in_another_cell", func(t *testing.T, w *world) {
		w.golden(t, "10-show-member", w.show(t, of("p1"), "2.69", "web2").status(t, 200))
		w.golden(t, "10-show-admin", w.show(t, adminOf("p1"), "2.69", "web2").status(t, 200))
		w.golden(t, "10-show-2.1", w.show(t, of("p1"), "2.1", "web2").status(t, 200))
	}},
	{11, "show_of_a_foreign_project", func(t *testing.T, w *world) {
		for _, version := range []string{"2.68", "2.69"} {
			w.show(t, of("p1"), version, "only1").fault(t, "itemNotFound", 404) // as with the cell up; Nova's 403 tells that there is one
		}
		if s := w.show(t, admin, "2.69", "only1").server(t); s["tenant_id"] != "p3" || s["status"] != "UNKNOWN" {
			t.Errorf("an administrator sees %v", s)
		}
	}},
	{12, "not_migrated", func(t *testing.T, w *world) {
		if q := w.queued(t, w.id(t, "unmigrated")); q != "null" {
			t.Fatalf("queued_for_delete is %s", q)
		}
		if all := w.named(t, w.api.get(t, of("p1"), "2.69", "/servers").servers(t)); !slices.Contains(all, "unmigrated?") {
			t.Errorf("it is not in the list: %v", all)
		}
		if s := w.show(t, of("p1"), "2.69", "unmigrated").server(t); s["status"] != "UNKNOWN" {
			t.Errorf("it is %v", s["status"])
		}
		w.show(t, of("p1"), "2.68", "unmigrated").fault(t, "computeFault", 500)
	}},
	{13, "restored_before_the_outage", func(t *testing.T, w *world) {
		if q := w.queued(t, w.id(t, "restored")); q != "false" {
			t.Errorf("queued_for_delete is %s", q)
		}
		if all := w.named(t, w.api.get(t, of("p1"), "2.69", "/servers").servers(t)); !slices.Contains(all, "restored?") {
			t.Errorf("it is not in the list: %v", all)
		}
	}},
	{14, "all_tenants", func(t *testing.T, w *world) {
		for _, query := range []string{"all_tenants=1", "all_tenants=True", "all_tenants=", "all_tenants"} {
			w.lists(t, w.api.get(t, admin, "2.69", "/servers?"+query), allProjects...)
			w.lists(t, w.api.get(t, admin, "2.69", "/servers/detail?"+query), allProjects...)
		}
		w.lists(t, w.api.get(t, admin, "2.68", "/servers?all_tenants=1"), "only2", "lost", "web4", "web2")
	}},
	{15, "all_tenants_no", func(t *testing.T, w *world) {
		w.lists(t, w.api.get(t, adminOf("p1"), "2.69", "/servers?all_tenants=0"), everything...)
		w.golden(t, "15-all-tenants-abc", w.api.get(t, adminOf("p1"), "2.69", "/servers?all_tenants=abc").status(t, 400))
	}},
	{16, "all_tenants_as_member", func(t *testing.T, w *world) {
		w.golden(t, "16-all-tenants-member", w.api.get(t, of("p1"), "2.69", "/servers?all_tenants=1").status(t, 403))
	}},
	// In cases 17 and 18 Nova leaves the cell out. The specification allows these two filters,
	// because the API database knows both values of every server, and newer clients send
	// deleted=False by themselves.
	{17, "all_tenants_of_one_project", func(t *testing.T, w *world) {
		for _, name := range []string{"project_id", "tenant_id"} {
			for _, path := range []string{"/servers", "/servers/detail"} {
				w.lists(t, w.api.get(t, admin, "2.69", path+"?all_tenants=1&"+name+"=p1"), everything...)
				w.lists(t, w.api.get(t, admin, "2.69", path+"?all_tenants=1&"+name+"=p2"), "only2")
				w.lists(t, w.api.get(t, admin, "2.69", path+"?all_tenants=1&deleted=False&"+name+"=p1"), everything...)
			}
			w.lists(t, w.api.get(t, admin, "2.68", "/servers?all_tenants=1&"+name+"=p1"), reachable...)
		}
	}},
	{18, "deleted_false", func(t *testing.T, w *world) {
		for _, who := range []caller{of("p1"), adminOf("p1")} {
			for _, path := range []string{"/servers", "/servers/detail"} {
				w.lists(t, w.api.get(t, who, "2.69", path+"?deleted=False"), everything...)
			}
		}
		w.lists(t, w.api.get(t, admin, "2.69", "/servers?all_tenants=True&deleted=False"), allProjects...)
		w.lists(t, w.api.get(t, adminOf("p1"), "2.68", "/servers?deleted=False"), reachable...)
		w.lists(t, w.api.get(t, adminOf("p1"), "2.69", "/servers?deleted=False&limit=1000"), reachable...)
	}},
	{19, "deleted_true", func(t *testing.T, w *world) {
		w.lists(t, w.api.get(t, adminOf("p1"), "2.69", "/servers?deleted=True"), "gone2", "soft2")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?deleted=True"), everything...)
	}},
	{20, "filters", func(t *testing.T, w *world) {
		for _, c := range []struct {
			query string
			names []string
		}{
			{"host=c2h1", []string{"web4", "web2"}},
			{"host=c1h1", nil},
			{"name=web", []string{"web4", "web2"}},
			{"status=ACTIVE", []string{"web4", "web2"}},
			{"status=ERROR", []string{"lost"}},
			{"tags=blue", nil},
			{"ip=10.", nil},
			{"user_id=u-p1", reachable},
			{"changes-since=2000-01-01T00:00:00Z", []string{"gone2", "soft2", "lost", "web4", "web2"}},
		} {
			w.lists(t, w.api.get(t, adminOf("p1"), "2.69", "/servers?"+c.query), c.names...)
		}
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?name=web"), "web4", "web2")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?host=c2h1"), everything...)
		w.api.get(t, of("p1"), "2.73", "/servers?locked=true").fault(t, "computeFault", 406)
		w.api.get(t, of("p1"), "2.83", "/servers?user_id=u-p1").fault(t, "computeFault", 406)
	}},
	{21, "status_unknown", func(t *testing.T, w *world) {
		for _, who := range []caller{of("p1"), adminOf("p1")} {
			w.golden(t, "21-status-unknown", w.api.get(t, who, "2.69", "/servers?status=UNKNOWN").status(t, 400))
			w.lists(t, w.api.get(t, who, "2.37", "/servers?status=UNKNOWN")) // it was checked from 2.38 on
		}
	}},
	{22, "unknown_parameter", func(t *testing.T, w *world) {
		for _, who := range []caller{of("p1"), adminOf("p1")} {
			w.lists(t, w.api.get(t, who, "2.69", "/servers?foo=bar"), everything...)
			w.api.get(t, who, "2.75", "/servers?foo=bar").fault(t, "computeFault", 406) // Nova: 400 from 2.75 on
		}
	}},
	{23, "limit", func(t *testing.T, w *world) {
		a := w.api.get(t, of("p1"), "2.69", "/servers?limit=3")
		w.lists(t, a, reachable...)
		w.golden(t, "23-limit-3", a)
		for _, limit := range []string{"1000", "4"} {
			a = w.api.get(t, of("p1"), "2.69", "/servers?limit="+limit)
			w.lists(t, a, reachable...)
			if next := a.next(t); next != "" {
				t.Errorf("limit=%s has a next page: %s", limit, next)
			}
		}
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?limit=0"))
		w.golden(t, "23-limit-negative", w.api.get(t, of("p1"), "2.69", "/servers?limit=-1").status(t, 400))
	}},
	{24, "sorting", func(t *testing.T, w *world) {
		for query, want := range map[string][]string{
			"sort_key=display_name": {"web4", "web2", "lost"}, "sort_key=display_name&sort_dir=asc": {"lost", "web2", "web4"},
			"sort_dir=asc": {"web2", "web4", "lost"},
		} {
			w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?"+query), want...)
		}
		ignored := w.named(t, w.api.get(t, of("p1"), "2.69", "/servers?sort_key=vcpus").servers(t))
		if slices.Sort(ignored); !slices.Equal(ignored, []string{"lost", "web2", "web4"}) {
			t.Errorf("sort_key=vcpus: %v", ignored)
		}
		w.golden(t, "24-sort-key-unknown", w.api.get(t, of("p1"), "2.69", "/servers?sort_key=foo").status(t, 400))
		w.golden(t, "24-sort-key-host", w.api.get(t, of("p1"), "2.69", "/servers?sort_key=host").status(t, 403))
	}},
	{25, "marker_in_the_cell_that_is_down", func(t *testing.T, w *world) {
		for _, path := range []string{"/servers", "/servers/detail"} {
			if m := w.api.get(t, of("p1"), "2.69", path+"?marker="+w.id(t, "web1")).fault(t, "computeFault", 500); !strings.Contains(m, "DBError") {
				t.Errorf("the message is %q", m)
			}
		}
	}},
	{27, "marker_in_cell0", func(t *testing.T, w *world) {
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?marker="+w.id(t, "lost")), "web4", "web2")
		unknown := "00000063-0000-4000-8000-000000000063"
		if m := w.api.get(t, of("p1"), "2.69", "/servers?marker="+unknown).fault(t, "badRequest", 400); m != "marker ["+unknown+"] not found" {
			t.Errorf("the message is %q", m)
		}
	}},
	{28, "next_links", func(t *testing.T, w *world) {
		var names []string
		pages := 0
		for link := "/servers?limit=1"; link != ""; pages++ {
			a := w.api.get(t, of("p1"), "2.69", link)
			names = append(names, w.named(t, a.servers(t))...)
			if link = a.next(t); link != "" {
				u, err := url.Parse(link)
				check(t, err)
				link = strings.TrimPrefix(u.RequestURI(), "/v2.1")
			}
			if pages > 10 {
				t.Fatalf("there is no end to it: %v", names)
			}
		}
		if !slices.Equal(names, reachable) || pages != len(reachable)+1 {
			t.Errorf("%d pages: %v", pages, names)
		}
	}},
	{29, "no_skipping_before_2.69", func(t *testing.T, w *world) {
		strict := w.another(t, "strict29", "compute_api.list_records_by_skipping_down_cells = false")
		for _, project := range []string{"p1", "p4"} { // also a project without servers there
			for _, path := range []string{"/servers", "/servers/detail"} {
				if m := strict.get(t, of(project), "2.68", path).fault(t, "computeFault", 500); !strings.Contains(m, "NovaException") || !strings.Contains(m, "configuration indicates that we should fail") {
					t.Errorf("the message is %q", m)
				}
			}
		}
		own := w.another(t, "own29", "compute_api.list_records_by_skipping_down_cells = false", "compute_api.instance_list_per_project_cells = true")
		w.lists(t, own.get(t, of("p2"), "2.68", "/servers"), "only2")
		own.get(t, of("p1"), "2.68", "/servers").fault(t, "computeFault", 500)
	}},
	{30, "no_skipping_from_2.69_on", func(t *testing.T, w *world) {
		strict := w.another(t, "strict30", "compute_api.list_records_by_skipping_down_cells = false")
		w.lists(t, strict.get(t, of("p1"), "2.69", "/servers"), everything...)
		w.lists(t, strict.get(t, of("p1"), "2.69", "/servers/detail"), everything...)
		for _, query := range []string{"limit=100", "name=web"} {
			strict.get(t, of("p1"), "2.69", "/servers?"+query).fault(t, "computeFault", 500)
		}
		strict.get(t, admin, "2.69", "/os-services").status(t, 200)
	}},
	{39, "services", func(t *testing.T, w *world) {
		w.golden(t, "39-services-2.69", w.api.get(t, admin, "2.69", "/os-services").status(t, 200))
		w.golden(t, "39-services-2.68", w.api.get(t, admin, "2.68", "/os-services").status(t, 200))
		w.golden(t, "39-services-2.1", w.api.get(t, admin, "2.1", "/os-services").status(t, 200))
	}},
	{40, "services_filtered", func(t *testing.T, w *world) {
		for query, want := range map[string][]string{
			"host=c1h1": {"c1h1?"}, "binary=nova-compute": {"c2h1", "c1h1?"}, "binary=nova-conductor": {}, "host=zzz": {}, "host=c2h1": {"c2h1"},
		} {
			hosts := []string{}
			for _, s := range w.api.get(t, admin, "2.69", "/os-services?"+query).services(t) {
				name, _ := s["host"].(string)
				if isUnknown(s) {
					name += "?"
				}
				hosts = append(hosts, name)
			}
			if diff := cmp.Diff(want, hosts); diff != "" {
				t.Errorf("%s (-want +got):\n%s", query, diff)
			}
		}
	}},
	{41, "services_as_member", func(t *testing.T, w *world) {
		w.golden(t, "41-services-member", w.api.get(t, of("p1"), "2.69", "/os-services").status(t, 403))
	}},
	{42, "host_that_was_not_mapped", func(t *testing.T, w *world) {
		for _, s := range w.api.get(t, admin, "2.69", "/os-services").services(t) {
			if s["host"] == "c1h2" {
				t.Errorf("it is shown: %v", s)
			}
		}
	}},
	{52, "changes_of_a_server_in_it", func(t *testing.T, w *world) {
		web1 := w.id(t, "web1")
		for _, a := range []*answer{
			w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+web1, nil),
			w.api.ask(t, of("p1"), "2.1", "DELETE", "/servers/"+web1, nil),
			w.api.act(t, of("p1"), web1, "forceDelete"),
			w.api.act(t, of("p1"), web1, "restore"),
		} {
			if m := a.fault(t, "computeFault", 500); !strings.Contains(m, "NovaException") {
				t.Errorf("the message is %q", m)
			}
		}
		if q := w.queued(t, web1); q != "false" {
			t.Errorf("queued_for_delete is %s", q)
		}
		w.api.ask(t, of("p2"), "2.69", "DELETE", "/servers/"+web1, nil).fault(t, "itemNotFound", 404)
		w.api.ask(t, admin, "2.69", "PUT", "/os-services/"+w.notes["service of c1h1"], record{"status": "disabled"}).fault(t, "computeFault", 500)
	}},
	{60, "versions", func(t *testing.T, w *world) {
		ask := func(header http.Header) *answer { return w.api.askWith(t, of("p1"), header, "GET", "/servers", nil) }
		w.golden(t, "60-version-too-high", ask(http.Header{"Openstack-Api-Version": {"compute 2.999"}}).status(t, 406))
		w.golden(t, "60-version-wrong", ask(http.Header{"Openstack-Api-Version": {"compute abc"}}).status(t, 400))
		for _, c := range []struct {
			header http.Header
			is     string
			names  []string
		}{
			{http.Header{"Openstack-Api-Version": {"compute latest"}}, "2.71", everything},
			{http.Header{"X-Openstack-Nova-Api-Version": {"2.69"}}, "2.69", everything},
			{http.Header{"X-Openstack-Nova-Api-Version": {"2.68"}}, "2.68", reachable},
			{http.Header{"X-Openstack-Nova-Api-Version": {"2.68"}, "Openstack-Api-Version": {"compute 2.69"}}, "2.69", everything},
			{http.Header{"Openstack-Api-Version": {"volume 3.1"}}, "2.1", reachable},
			{http.Header{}, "2.1", reachable},
		} {
			a := ask(c.header)
			w.lists(t, a, c.names...)
			if a.header.Get("Openstack-Api-Version") != "compute "+c.is || a.header.Get("X-Openstack-Nova-Api-Version") != c.is || len(a.header["Vary"]) != 2 ||
				!strings.HasPrefix(a.header.Get("X-Openstack-Request-Id"), "req-") || a.header.Get("X-Openstack-Request-Id") != a.header.Get("X-Compute-Request-Id") {
				t.Errorf("%v: the headers are %v", c.header, a.header)
			}
		}
	}},
}}

// What p1 has in cells that are up, and what a list without filters has: "?" marks what is UNKNOWN.
// allProjects is that of all.
var (
	reachable   = []string{"lost", "web4", "web2"}
	everything  = append([]string{"restored?", "unmigrated?", "nospec?", "nouser?", "diskonly?", "zoned?", "web3?", "web1?"}, reachable...)
	allProjects = slices.Concat([]string{"only1?"}, everything[:8], []string{"only2"}, reachable)
)

// outageWorld is a world whose cell1 is killed.
func outageWorld(t *testing.T) *world {
	w := newWorld(t, plan{api: []string{`compute_api.reclaim_instance_interval = "1h"`}})
	for _, s := range []struct{ name, host string }{{"web1", "c1h1"}, {"web2", "c2h1"}, {"web3", "c1h1"}, {"web4", "c2h1"}} {
		w.begin(t, "p1", s.name, s.host)
	}
	w.bury(t, "p1", "lost")
	w.accepted(t, w.api.post(t, adminOf("p1"), "zoned", record{"availability_zone": "nova:c1h1"}), "zoned")
	for _, s := range []struct{ name, host string }{
		{"diskonly", "c1h1"}, {"nouser", "c1h1"}, {"nospec", "c1h1"}, {"unmigrated", "c1h1"}, {"restored", "c1h1"},
		{"soft1", "c1h1"}, {"soft2", "c2h1"}, {"gone1", "c1h1"}, {"gone2", "c2h1"},
	} {
		w.begin(t, "p1", s.name, s.host)
	}
	w.begin(t, "p2", "only2", "c2h1")
	w.begin(t, "p3", "only1", "c1h1")
	w.settled(t, "ERROR", "lost")
	w.settled(t, "ACTIVE", "web1", "web2", "web3", "web4", "zoned", "diskonly", "nouser", "nospec", "unmigrated", "restored",
		"soft1", "soft2", "gone1", "gone2", "only1", "only2")
	for _, name := range []string{"soft1", "soft2", "restored"} {
		w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+w.id(t, name), nil).status(t, 204)
	}
	w.settled(t, "SOFT_DELETED", "soft1", "soft2", "restored")
	w.api.act(t, of("p1"), w.id(t, "restored"), "restore").status(t, 202)
	for _, name := range []string{"gone1", "gone2"} {
		w.api.act(t, of("p1"), w.id(t, name), "forceDelete").status(t, 202)
	}
	w.settled(t, "ACTIVE", "restored")
	w.gone(t, "gone1")
	w.gone(t, "gone2")
	w.addHost(t, "cell1", "c1h2", 1024)
	for _, s := range w.api.get(t, admin, "2.69", "/os-services?host=c1h1").services(t) {
		w.notes["service of c1h1"], _ = s["id"].(string)
	}
	w.editing(t, func(file string) {
		edit(t, file, "UPDATE request_specs SET spec = json_remove(spec, '$.image_ref') WHERE instance_uuid = ?", w.id(t, "diskonly"))
		edit(t, file, "UPDATE request_specs SET spec = json_remove(spec, '$.user_id') WHERE instance_uuid = ?", w.id(t, "nouser"))
		edit(t, file, "DELETE FROM request_specs WHERE instance_uuid = ?", w.id(t, "nospec"))
		edit(t, file, "UPDATE instance_mappings SET queued_for_delete = NULL WHERE instance_uuid = ?", w.id(t, "unmigrated"))
	})
	w.down(t, "cell1")
	return w
}

// show shows a server by its name.
func (w *world) show(t *testing.T, who caller, version, name string) *answer {
	t.Helper()
	return w.api.get(t, who, version, "/servers/"+w.id(t, name))
}

// lists checks which servers a list has, in their order; "?" marks those that are to be UNKNOWN.
func (w *world) lists(t *testing.T, a *answer, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), w.named(t, a.servers(t))); diff != "" {
		t.Errorf("%s (-want +got):\n%s", a.request, diff)
	}
}
