// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	root3  = "30000000-0000-4000-8000-0000000000a1"
	numa3  = "30000000-0000-4000-8000-0000000000a2"
	other3 = "30000000-0000-4000-8000-0000000000a3"
)

// arrived is a world in which the host h3 has come: its trees have 10 VCPU that count four times,
// 100 MEMORY_MB in two parts, and traits of two kinds. The hour of its arrival is over.
type arrived struct {
	t   *testing.T
	api *api.API
	l   *transactor.Ledger
	now *time.Time
}

func newArrived(t *testing.T, change ...func(*api.Config)) arrived {
	t.Helper()
	now := clock
	w := arrived{t: t, now: &now}
	w.api, w.l = hostsWorld(t, append(change, func(c *api.Config) { c.Now = func() time.Time { return now } })...)
	for _, name := range []string{"CUSTOM_FAST_1", "CUSTOM_FAST_2", "CUSTOM_GOLD"} {
		call{method: "PUT", path: "/traits/" + name, version: "1.39", status: 201}.do(t, w.api)
	}
	w.make(root3, "h3", "", 200)
	w.inventories(root3, 200, "VCPU", 8, 1.0, "MEMORY_MB", 60, 1.0)
	w.make(numa3, "h3_numa0", root3, 200)
	w.inventories(numa3, 200, "MEMORY_MB", 40, 1.0)
	w.traits(root3, 200, "COMPUTE_NODE", "HW_CPU_X86_AVX", "CUSTOM_FAST_1")
	now = now.Add(59 * time.Minute)
	w.inventories(root3, 200, "VCPU", 10, 4.0, "MEMORY_MB", 60, 1.0) // a CPU is added
	now = now.Add(time.Minute)
	return w
}

// send makes a write of the host, and checks a refusal: it says what to do, has a code of its own,
// and has changed nothing.
func (a arrived) send(method, path, body string, status int) {
	a.t.Helper()
	before := dumpOf(a.t, a.l)
	answer := call{method: method, path: path, body: body}.as("h3").send(a.api)
	if answer.Code != status {
		a.t.Fatalf("%s %s %s: status %d, want %d: %s", method, path, body, answer.Code, status, answer.Body)
	}
	if status != http.StatusForbidden {
		return
	}
	if e := errorOf(a.t, answer); e.Code != wire.CodeHostCapacity ||
		!strings.Contains(e.Detail, "compute-agent cells manage admit-host h3 --") {
		a.t.Errorf("%s %s: %s", method, path, answer.Body)
	}
	testproc.Samef(a.t, cmp.Diff(before, dumpOf(a.t, a.l)), "%s %s was refused, and changed", method, path)
}

func (a arrived) generation(provider string) int64 {
	p, ok := a.l.Current().Provider(provider)
	if !ok {
		return 0
	}
	return p.Generation
}

func (a arrived) make(uuid, name, parent string, status int) {
	a.t.Helper()
	if parent != "" {
		parent = `,"parent_provider_uuid":"` + parent + `"`
	}
	a.send("POST", "/resource_providers", `{"name":"`+name+`","uuid":"`+uuid+`"`+parent+`}`, status)
}

// shown are inventories in JSON: class, total and ratio, again and again.
func shown(of ...any) string {
	var parts []string
	for i := 0; i < len(of); i += 3 {
		parts = append(parts, fmt.Sprintf(`%q:{"total":%d,"allocation_ratio":%v}`, of[i], of[i+1], of[i+2]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (a arrived) inventories(provider string, status int, of ...any) {
	a.t.Helper()
	body := fmt.Sprintf(`{"resource_provider_generation":%d,"inventories":%s}`, a.generation(provider), shown(of...))
	a.send("PUT", "/resource_providers/"+provider+"/inventories", body, status)
}

func (a arrived) traits(provider string, status int, names ...string) {
	a.t.Helper()
	body := fmt.Sprintf(`{"resource_provider_generation":%d,"traits":["%s"]}`,
		a.generation(provider), strings.Join(names, `","`))
	a.send("PUT", "/resource_providers/"+provider+"/traits", body, status)
}

func (a arrived) reshape(status int, provider string, of ...any) {
	a.t.Helper()
	body := fmt.Sprintf(`{"inventories":{%q:{"resource_provider_generation":%d,"inventories":%s}},"allocations":{}}`,
		provider, a.generation(provider), shown(of...))
	a.send("POST", "/reshaper", body, status)
}

// state states what h3 may report, as an administrator, and returns what it may report then.
func (a arrived) state(body string) wire.HostAdmission {
	a.t.Helper()
	answer := call{method: "POST", path: "/hosts/h3/admission", body: body, version: "1.39", status: 200}.do(a.t, a.api)
	return decoded[wire.HostAdmission](a.t, answer)
}

// TestCapacityOfAHost: after the hour of its arrival a host reports twice as much of each class as
// it had then, and no more by whichever way; and only traits of kinds that it had.
func TestCapacityOfAHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, do := range map[string]func(w arrived){
		"twice as much": func(w arrived) {
			w.inventories(root3, 200, "VCPU", 20, 4.0, "MEMORY_MB", 160, 1.0)
			w.inventories(numa3, 403, "MEMORY_MB", 41, 1.0)
			w.inventories(root3, 200, "VCPU", 10, 8.0, "MEMORY_MB", 100, 1.0)
			w.inventories(numa3, 200, "MEMORY_MB", 50, 2.0)
		},
		"more": func(w arrived) { w.inventories(root3, 403, "VCPU", 21, 4.0) },
		"more, when twice is there": func(w arrived) {
			w.inventories(root3, 200, "VCPU", 20, 4.0)
			*w.now = w.now.Add(48 * time.Hour)
			w.inventories(root3, 403, "VCPU", 21, 4.0)
		},
		"more of one inventory": func(w arrived) {
			body := fmt.Sprintf(`{"resource_provider_generation":%d,"total":81}`, w.generation(root3))
			w.send("PUT", "/resource_providers/"+root3+"/inventories/VCPU", body, 403)
		},
		"another inventory of the class": func(w arrived) {
			w.send("POST", "/resource_providers/"+numa3+"/inventories", `{"resource_class":"VCPU","total":41}`, 403)
			w.send("POST", "/resource_providers/"+numa3+"/inventories", `{"resource_class":"VCPU","total":40}`, 201)
		},
		"a larger ratio": func(w arrived) { w.inventories(root3, 403, "VCPU", 10, 8.1) },
		"a large ratio of little": func(w arrived) {
			w.inventories(root3, 403, "VCPU", 1, 81.0)
		},
		"all the units, of which most are reserved": func(w arrived) {
			body := fmt.Sprintf(
				`{"resource_provider_generation":%d,"inventories":{"VCPU":{"total":1000,"reserved":999}}}`,
				w.generation(root3))
			w.send("PUT", "/resource_providers/"+root3+"/inventories", body, 403)
		},
		"many small providers": func(w arrived) {
			for n := range 50 {
				uuid := fmt.Sprintf("30000000-0000-4000-9000-%012d", n)
				w.make(uuid, fmt.Sprintf("h3_%d", n), root3, 200)
				w.inventories(uuid, map[bool]int{true: 200, false: 403}[n < 40], "VCPU", 1, 1.0)
			}
		},
		"another tree": func(w arrived) {
			w.make(other3, "h3.b", "", 200)
			w.inventories(other3, 403, "VCPU", 41, 1.0)
			w.inventories(other3, 200, "VCPU", 40, 1.0)
		},
		"the tree made again": func(w arrived) {
			w.send("DELETE", "/resource_providers/"+numa3, "", 204)
			w.send("DELETE", "/resource_providers/"+root3, "", 204)
			*w.now = w.now.Add(48 * time.Hour)
			w.make(other3, "h3", "", 200)
			w.inventories(other3, 403, "VCPU", 81, 1.0)
			w.inventories(other3, 403, "DISK_GB", 1, 1.0)
			w.traits(other3, 403, "CUSTOM_GOLD")
			w.inventories(other3, 200, "VCPU", 80, 1.0)
		},
		"a new class": func(w arrived) {
			w.inventories(root3, 403, "VCPU", 10, 1.0, "VGPU", 1, 1.0)
			w.inventories(numa3, 403, "PCPU", 1, 1.0)
		},
		"a reshape": func(w arrived) {
			w.reshape(403, root3, "VCPU", 81, 1.0)
			w.reshape(403, root3, "PCPU", 10, 1.0)
			w.reshape(204, root3, "VCPU", 80, 1.0)
		},
		"a new kind of traits": func(w arrived) {
			w.traits(root3, 403, "COMPUTE_NODE", "CUSTOM_GOLD")
			w.traits(numa3, 403, "HW_GPU_API_VULKAN")
			w.traits(numa3, 403, "STORAGE_DISK_SSD")
			w.traits(root3, 403, "COMPUTE_NODE", "COMPUTE_SECURITY_TPM_2_0")
			w.traits(root3, 403, "OWNER_CYBORG")
			w.traits(root3, 200, "COMPUTE_NODE", "COMPUTE_STATUS_DISABLED", "OWNER_NOVA", "HW_CPU_X86_AVX2",
				"HW_NUMA_ROOT", "CUSTOM_FAST_2")
			w.traits(root3, 200, "COMPUTE_NODE")
			w.traits(numa3, 200, "HW_CPU_X86_AVX2", "CUSTOM_FAST_1")
		},
		"another security trait": func(w arrived) { // as after an upgrade of libvirt
			call{method: "POST", path: "/hosts/h3/admission", body: `{"traits":["COMPUTE_SECURITY"]}`,
				version: "1.39", status: 200}.do(w.t, w.api)
			w.traits(root3, 200, "COMPUTE_NODE", "COMPUTE_SECURITY_STATELESS_FIRMWARE")
		},
		"less, and as before": func(w arrived) {
			w.inventories(root3, 200, "MEMORY_MB", 1, 1.0)
			w.send("DELETE", "/resource_providers/"+numa3+"/inventories", "", 204)
			w.inventories(root3, 200, "VCPU", 10, 4.0, "MEMORY_MB", 100, 1.0)
		},
	} {
		t.Run(name, func(t *testing.T) { do(newArrived(t)) })
	}
}

// TestAdmittedByAPerson: what an administrator states counts as what the host had when it came, for
// the classes and kinds that are named; with a window, all that the host reports in the next hour.
// A host states nothing of itself.
func TestAdmittedByAPerson(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newArrived(t)
	call{method: "GET", path: "/hosts/h3/admission", status: 403}.as("h3").do(t, w.api)
	call{method: "POST", path: "/hosts/h3/admission", body: `{"classes":{"VCPU":1000}}`, status: 403}.as("h3").
		do(t, w.api)
	call{method: "GET", path: "/hosts/h9/admission", version: "1.39", status: 404}.do(t, w.api)
	call{method: "POST", path: "/hosts/h3/admission",
		body: `{"traits":["COMPUTE_NODE"]}`, version: "1.39", status: 400}.do(t, w.api)
	call{method: "POST", path: "/hosts/h3/admission", body: `{"window":1}`, version: "1.39", status: 400}.do(t, w.api)

	since := clock
	want := wire.HostAdmission{
		Host: "h3", Since: &since, Classes: map[string]int64{"VCPU": 40, "MEMORY_MB": 100}, Factor: 2,
		Traits: []string{"CUSTOM_FAST", "HW_CPU"},
	}
	got := decoded[wire.HostAdmission](t,
		call{method: "GET", path: "/hosts/H3/admission", version: "1.39", status: 200}.do(t, w.api))
	testproc.Same(t, cmp.Diff(want, got))
	got = w.state(`{"classes":{"VCPU":100,"VGPU":4},"traits":["HW_GPU_API_VULKAN"]}`)
	want.Classes, want.Traits = map[string]int64{"VCPU": 100, "VGPU": 4, "MEMORY_MB": 100},
		[]string{"CUSTOM_FAST", "HW_CPU", "HW_GPU"}
	testproc.Same(t, cmp.Diff(want, got))
	w.inventories(root3, 403, "VCPU", 201, 1.0)
	w.inventories(root3, 403, "VGPU", 9, 1.0)
	w.inventories(root3, 200, "VCPU", 200, 1.0, "VGPU", 8, 1.0, "MEMORY_MB", 160, 1.0)
	w.traits(root3, 200, "HW_GPU_API_OPENCL_V1_2", "HW_CPU_X86_AVX")

	w.state(`{"classes":{"VCPU":10}}`) // what is there may stay
	w.inventories(root3, 403, "VCPU", 201, 1.0, "VGPU", 8, 1.0, "MEMORY_MB", 160, 1.0)
	w.inventories(root3, 200, "VCPU", 190, 1.0, "VGPU", 8, 1.0, "MEMORY_MB", 160, 1.0)
	w.inventories(root3, 200, "VCPU", 20, 1.0)
	w.inventories(root3, 403, "VCPU", 21, 1.0)

	got = w.state(`{"window":true}`)
	if until := w.now.Add(time.Hour); got.Until == nil || !got.Until.Equal(until) {
		t.Errorf("until %v, want %v", got.Until, until)
	}
	testproc.Same(t, cmp.Diff(got, decoded[wire.HostAdmission](t,
		call{method: "GET", path: "/hosts/h3/admission", version: "1.39", status: 200}.do(t, w.api))))
	w.inventories(root3, 200, "VCPU", 500, 1.0, "DISK_GB", 5, 1.0)
	w.traits(root3, 200, "CUSTOM_GOLD")
	*w.now = w.now.Add(time.Hour)
	w.inventories(root3, 403, "VCPU", 1001, 1.0, "DISK_GB", 5, 1.0)
	w.inventories(root3, 200, "VCPU", 1000, 1.0, "DISK_GB", 10, 1.0)
}

// TestWindowOfAHostThatWasNeverNoted: what is in its trees when an administrator opens the window
// is admitted, whatever the host adds in that hour, but for what is stated.
func TestWindowOfAHostThatWasNeverNoted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	prepared := func(t *testing.T, name, body string) arrived {
		now := clock
		w := arrived{t: t, now: &now}
		w.api, w.l = hostsWorld(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
		calls(t, w.api,
			call{method: "POST", path: "/resource_providers", version: "1.39", body: `{"name":"` +
				name + `","uuid":"` + root3 + `"}`, status: 200},
			call{method: "PUT", path: "/resource_providers/" + root3 + "/inventories", version: "1.39", status: 200,
				body: `{"resource_provider_generation":0,"inventories":` +
					shown("VCPU", 8, 1.0, "MEMORY_MB", 100, 1.0) + `}`},
			call{method: "PUT", path: "/resource_providers/" + root3 + "/traits", version: "1.39", status: 200,
				body: `{"resource_provider_generation":1,"traits":["HW_CPU_X86_AVX"]}`})
		w.state(body)
		return w
	}
	hour := func(w arrived) { *w.now = w.now.Add(time.Hour) }

	w := prepared(t, "h3", `{"window":true}`)
	w.inventories(root3, 200, "VCPU", 8, 1.0, "MEMORY_MB", 100, 1.0, "VGPU", 1, 1.0)
	hour(w)
	w.inventories(root3, 200, "VCPU", 8, 1.0, "MEMORY_MB", 101, 1.0, "VGPU", 2, 1.0)
	w.inventories(root3, 200, "VCPU", 16, 1.0, "MEMORY_MB", 200, 1.0, "VGPU", 2, 1.0)
	w.inventories(root3, 403, "VCPU", 16, 1.0, "MEMORY_MB", 201, 1.0, "VGPU", 2, 1.0)

	w = prepared(t, "h3.example.com", `{"window":true}`) // and the host adds nothing
	hour(w)
	w.inventories(root3, 200, "VCPU", 8, 1.0, "MEMORY_MB", 101, 1.0)
	w.inventories(root3, 403, "VCPU", 8, 1.0, "MEMORY_MB", 201, 1.0)
	w.traits(root3, 200, "COMPUTE_NODE")
	w.traits(root3, 200, "HW_CPU_X86_AVX2")

	w = prepared(t, "h3", `{"classes":{"VCPU":5},"window":true}`)
	hour(w)
	w.inventories(root3, 200, "VCPU", 8, 1.0, "MEMORY_MB", 101, 1.0)
	w.inventories(root3, 200, "VCPU", 10, 1.0, "MEMORY_MB", 101, 1.0)
	w.inventories(root3, 403, "VCPU", 11, 1.0, "MEMORY_MB", 101, 1.0)
}

// TestWindowAdmitsAllThatIsThere: in a window the host is admitted what it has, not only what it
// adds.
func TestWindowAdmitsAllThatIsThere(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newArrived(t)
	w.inventories(root3, 200, "VCPU", 20, 4.0)
	w.state(`{"window":true}`)
	w.inventories(root3, 200, "VCPU", 20, 4.0, "VGPU", 1, 1.0)
	*w.now = w.now.Add(time.Hour)
	w.inventories(root3, 200, "VCPU", 40, 4.0)
	w.inventories(root3, 403, "VCPU", 41, 4.0)
}

// TestWindowOfAClockThatWasAhead: a window that a wrong clock opened is shut when the clock is
// right again, and does not open when its time comes.
func TestWindowOfAClockThatWasAhead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, reports := range map[string]bool{"the host reports meanwhile": true, "the host is silent": false} {
		t.Run(name, func(t *testing.T) {
			const year = 365 * 24 * time.Hour
			w := newArrived(t)
			right := *w.now
			*w.now = right.Add(year)
			w.state(`{"window":true}`)
			*w.now = right.Add(time.Minute)
			if reports {
				w.inventories(root3, 403, "VCPU", 10, 4.0, "VGPU", 1, 1.0)
				w.inventories(root3, 200, "VCPU", 10, 4.0)
				*w.now = right.Add(year + time.Minute)
				w.inventories(root3, 403, "VCPU", 10, 4.0, "VGPU", 1, 1.0)
			}
			*w.now = right.Add(year - time.Hour/2)
			w.inventories(root3, 403, "VCPU", 10, 4.0, "VGPU", 1, 1.0)
		})
	}
}

// TestStatedBeforeItComes: what an administrator states before a host comes is all that it reports.
func TestStatedBeforeItComes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := arrived{t: t, now: new(time.Time)}
	w.api, w.l = hostsWorld(t)
	got := w.state(`{"classes":{"VCPU":10}}`)
	testproc.Same(t, cmp.Diff(wire.HostAdmission{Host: "h3", Classes: map[string]int64{"VCPU": 10},
		Factor: 2, Traits: []string{}}, got))
	w.make(root3, "h3", "", 200)
	w.inventories(root3, 403, "VCPU", 21, 1.0)
	w.inventories(root3, 403, "VCPU", 10, 1.0, "MEMORY_MB", 10, 1.0)
	w.inventories(root3, 200, "VCPU", 20, 1.0)
}

// TestHostsFromBeforeTheBound: a host that had reported before that was noted is admitted what its
// trees have at its next write, whatever that is, and has no hour. What an administrator writes
// into its trees stays; the host adds nothing to it.
func TestHostsFromBeforeTheBound(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	prepared := func(t *testing.T) arrived {
		w := arrived{t: t, now: new(time.Time)}
		w.api, w.l = hostsWorld(t)
		calls(t, w.api,
			call{method: "POST", path: "/resource_providers", version: "1.39",
				body: `{"name":"h3","uuid":"` + root3 + `"}`, status: 200},
			call{method: "PUT", path: "/resource_providers/" + root3 + "/inventories", version: "1.39", status: 200,
				body: `{"resource_provider_generation":0,"inventories":{"VCPU":{"total":10}}}`})
		return w
	}
	w := prepared(t)
	w.inventories(root3, 403, "VCPU", 21, 1.0)
	w.inventories(root3, 403, "VCPU", 10, 1.0, "MEMORY_MB", 1, 1.0)
	w.inventories(root3, 200, "VCPU", 20, 1.0)
	w = prepared(t)
	w.send("DELETE", "/resource_providers/"+root3, "", 204)
	w.make(root3, "h3", "", 200)
	w.inventories(root3, 403, "VCPU", 21, 1.0)
	w = prepared(t)
	w.traits(root3, 200, "COMPUTE_NODE")
	call{method: "PUT", path: "/resource_providers/" + root3 + "/inventories", version: "1.39", status: 200,
		body: `{"resource_provider_generation":2,"inventories":{"VCPU":{"total":10,"allocation_ratio":16},` +
			`"DISK_GB":{"total":7}}}`}.do(t, w.api)
	w.inventories(root3, 200, "VCPU", 10, 16.0, "DISK_GB", 7, 1.0)
	w.inventories(root3, 403, "VCPU", 11, 16.0, "DISK_GB", 7, 1.0)
	w.inventories(root3, 403, "VCPU", 10, 16.0, "DISK_GB", 8, 1.0)
	w.inventories(root3, 200, "VCPU", 10, 8.0)
	w.inventories(root3, 200, "VCPU", 10, 2.0)
	w.inventories(root3, 403, "VCPU", 10, 16.0)
}

// TestRenamedClassesCountTogether: a layout of a driver that reports the same by another class is
// no growth, if an operator has declared the names; both together are bounded.
func TestRenamedClassesCountTogether(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newArrived(t, func(c *api.Config) { c.Options.HostClassRenames = []string{"VCPU=PCPU"} })
	w.reshape(204, root3, "PCPU", 10, 1.0, "MEMORY_MB", 60, 1.0)
	w.reshape(403, root3, "PCPU", 81, 1.0, "MEMORY_MB", 60, 1.0)
	w.reshape(403, root3, "PCPU", 41, 1.0, "VCPU", 10, 4.0)
	w.reshape(204, root3, "PCPU", 40, 1.0, "VCPU", 10, 4.0)
	w.reshape(204, root3, "PCPU", 10, 1.0)
	w.state(`{"classes":{"VCPU":0,"PCPU":10}}`) // ratios of the former class count no more
	w.reshape(403, root3, "PCPU", 21, 1.0)
	w.reshape(204, root3, "PCPU", 20, 1.0)
}

// TestRefusalNamesAll: one answer says all that is not admitted, up to a bound, and one command
// admits it.
func TestRefusalNamesAll(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newArrived(t)
	w.refused(fmt.Sprintf(`{"resource_provider_generation":%d,"inventories":%s}`,
		w.generation(root3), shown("VCPU", 21, 4.0, "MEMORY_MB", 161, 1.0, "VGPU", 2, 1.0)),
		"/inventories", "The host h3 is not admitted to report this: its trees would have 201 MEMORY_MB (total "+
			"times allocation_ratio), more than 200: 2 times the 100 that it reported when it came, or "+
			"that an operator stated; its trees would have 84 VCPU (total times allocation_ratio), "+
			"more than 80: 2 times the 40 that it reported when it came, or that an operator stated; "+
			"its trees would have 2 VGPU (total times allocation_ratio), and it has not reported this "+
			"class when it came. If the machine has it, a person admits it, on the machine of the "+
			"compute API: compute-agent cells manage admit-host h3 --class MEMORY_MB=201 --class "+
			"VCPU=84 --class VGPU=2 (with --unknown for a host that the compute API does not know).")
	w.state(`{"classes":{"MEMORY_MB":201,"VCPU":84,"VGPU":2}}`)
	w.inventories(root3, 200, "VCPU", 21, 4.0, "MEMORY_MB", 161, 1.0, "VGPU", 2, 1.0)
	var traits, flags []string
	for n := range 25 {
		kind := fmt.Sprintf("CUSTOM_K%02d", n)
		call{method: "PUT", path: "/traits/" + kind, version: "1.39", status: 201}.do(t, w.api)
		traits, flags = append(traits, `"`+kind+`"`), append(flags, "--trait "+kind)
	}
	w.refused(fmt.Sprintf(`{"resource_provider_generation":%d,"traits":[%s]}`,
		w.generation(root3), strings.Join(traits, ",")),
		"/traits", "begins with CUSTOM_K19 when it came; and 5 more, which the next answer names. If", "admit-host h3 "+
			strings.Join(flags[:20], " ")+" (with")
}

// refused makes a write of the host to its root, which is refused with a message that has some
// parts.
func (a arrived) refused(body, path string, parts ...string) {
	a.t.Helper()
	answer := call{method: "PUT", path: "/resource_providers/" + root3 + path, body: body, status: 403}.as("h3").
		do(a.t, a.api)
	for _, part := range parts {
		testproc.Contains(a.t, errorOf(a.t, answer).Detail, part, "the answer %s does not say %q", answer.Body, part)
	}
}

// TestNamesThatNoHostHas: nothing is stated of a host of a name that cannot be stored, or that
// would be read as another one.
func TestNamesThatNoHostHas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newArrived(t)
	before := dumpOf(t, w.l)
	for _, name := range []string{"%FF", "%00", "h3%FF", "h3%00", "h3%0A", "%7F"} {
		for _, body := range []string{`{"window":true}`, `{`} {
			answer := call{method: "POST", path: "/hosts/" + name + "/admission", body: body,
				version: "1.39", status: 400}.do(t, w.api)
			if e := errorOf(t, answer); !strings.Contains(e.Detail, "is no name of a host") {
				t.Errorf("%s: %s", name, answer.Body)
			}
		}
		call{method: "GET", path: "/hosts/" + name + "/admission", version: "1.39", status: 400}.do(t, w.api)
	}
	testproc.Same(t, cmp.Diff(before, dumpOf(t, w.l)))
}

// TestNoBoundOfCapacity: without a factor a host reports what it likes, and nothing is noted.
func TestNoBoundOfCapacity(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newArrived(t, func(c *api.Config) { c.Options.HostCapacityFactor = 0 })
	w.inventories(root3, 200, "VCPU", 2_000_000_000, 1.0, "VGPU", 1000, 1.0)
	w.traits(root3, 200, "CUSTOM_GOLD")
	if h, known := w.l.Current().Host("h3"); known {
		t.Errorf("noted: %+v", h)
	}
}

// TestAdmissionInTheAuditLog: it says who stated what a host may report.
func TestAdmissionInTheAuditLog(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, records := auditedAPI(t, auditlog.Options{})
	call{method: "POST", path: "/hosts/h3/admission",
		version: "1.39", body: `{"classes":{"VCPU":10},"traits":["HW_GPU"]}`, status: 200}.do(t, h)
	call{method: "POST", path: "/hosts/h3/admission",
		version: "1.39", body: `{"classes":{"VCPU":20}}`, status: 200}.do(t, h)
	var got []string
	for _, r := range records() {
		for i := range r.Changes {
			got = append(got, r.User+": "+r.Changes[i].String())
		}
	}
	want := []string{
		`admin: admission h3: created classes VCPU=10, traits HW_GPU`,
		`admin: admission h3: classes VCPU=10 → VCPU=20`,
	}
	testproc.Same(t, cmp.Diff(want, got))
}
