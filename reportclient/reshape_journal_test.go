// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// journal is a ReshapeLog that records its calls.
type journal struct {
	events []string
	begun  *reportclient.Reshape
	full   bool // of the disk; filled: since Begin
	filled bool
}

func (j *journal) Begin(root string, r *reportclient.Reshape) error {
	if j.full {
		return syscall.ENOSPC
	}
	j.events, j.begun = append(j.events, "begin "+root[len(root)-1:]), r
	return nil
}

func (j *journal) End(root string, outcome reportclient.ReshapeOutcome) error {
	j.events = append(j.events, string(outcome)+" "+root[len(root)-1:])
	if j.filled {
		return syscall.ENOSPC
	}
	return nil
}

// TestReshapeIsNotPostedUnrecorded: a reshape that the journal cannot record is not posted, and
// nothing after it is written.
func TestReshapeIsNotPostedUnrecorded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	requests := &counter{fail: func(*http.Request) (*http.Response, error) {
		return answer(http.StatusNoContent, ""),
			nil
	}}
	client := newClient(t, "http://placement.invalid",
		func(c *reportclient.Config) { c.Transport, c.ReshapeLog = requests, &journal{full: true} })
	known := knownTree(t)
	desired := known.Clone()
	gone(moved)(t, desired)
	inventory(gpu0, "VGPU", providertree.Inventory{Total: 1})(t, desired)
	inventory(cn1, "VGPU", providertree.Inventory{Total: 6})(t, desired)
	plan := reportclient.NewReshapePlan(known, desired, nil, providertree.Allocations{})
	err := client.Apply(t.Context(), id(cn1), plan)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "not posted") ||
		!strings.Contains(err.Error(), "1 more were skipped") {
		t.Errorf("got %v", err)
	}
	want(t, requests)
}

// TestReshapeWhoseOutcomeIsUnrecorded has happened all the same, and the log says what follows.
func TestReshapeWhoseOutcomeIsUnrecorded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, full := range []bool{false, true} {
		var log strings.Builder
		requests := &counter{fail: func(*http.Request) (*http.Response, error) {
			return answer(
				http.StatusNoContent, ""), nil
		}}
		client := newClient(t, "http://placement.invalid", func(c *reportclient.Config) {
			c.Transport, c.ReshapeLog, c.Logger = requests,
				&journal{filled: full}, zerolog.New(&log).Level(zerolog.InfoLevel)
		})
		ok(t, client.Apply(t.Context(), id(cn1), oneMove(t).Reshape.Plan()))
		if got := strings.Contains(log.String(), "The next start compares with Placement"); got != full ||
			(log.Len() > 0) != full {
			t.Errorf("full %t: %s", full, log.String())
		}
	}
}

// TestCompareReshape: one sign is enough, those that contradict each other are none, and what
// another client changed since says nothing.
func TestCompareReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		old     = `{"resource_provider_generation": 7, "inventories": {"VCPU": {"total": 8}, "VGPU": {"total": 4}}}`
		oldNext = `{"resource_provider_generation": 8, "inventories": {"VCPU": {"total": 8, "min_unit": 1, ` +
			`"max_unit": 2147483647, "step_size": 1, "allocation_ratio": 1.0}, "VGPU": {"total": 4, "min_unit": 1, ` +
			`"max_unit": 2147483647, "step_size": 1, "allocation_ratio": 1.0}}}`
		renewed = `{"resource_provider_generation": 10, "inventories": {"VCPU": {"total": 8, "min_unit": 1, ` +
			`"max_unit": 2147483647, "step_size": 1, "allocation_ratio": 1.0}, "VGPU": {"total": 6, "min_unit": 1, ` +
			`"max_unit": 2147483647, "step_size": 1, "allocation_ratio": 1.0}}}`
		third = `{"resource_provider_generation": 12, "inventories": {"VCPU": {"total": 2, "allocation_ratio": 1.0}}}`

		childOld  = `{"resource_provider_generation": 3, "inventories": {"VGPU": {"total": 2}}}`
		childThen = `{"resource_provider_generation": 5, "inventories": {"CUSTOM_X": {"total": 2, ` +
			`"allocation_ratio": 1.0}}}`
		childGone = ""

		holdsOld = `{"allocations": {"00000000-0000-4000-8000-000000000002": {"resources": {"VGPU": 1}}, ` +
			`"00000000-0000-4000-8000-000000000009": {"resources": {"DISK_GB": 10}}}, "project_id": "p", "user_id": ` +
			`"u", "consumer_generation": 4}`
		holdsNew = `{"allocations": {"00000000-0000-4000-8000-000000000001": {"resources": {"VGPU": 1}}, ` +
			`"00000000-0000-4000-8000-000000000009": {"resources": {"DISK_GB": 10}}}, "project_id": "p", "user_id": ` +
			`"u", "consumer_generation": 5}`
		holdsNone = `{"allocations": {}}`
	)
	cases := []struct {
		name                  string
		root, child, consumer string
		want                  reportclient.ReshapeOutcome
	}{
		{"as before", old, childOld, holdsOld, reportclient.ReshapeRefused},
		{"as after", renewed, childGone, holdsNew, reportclient.ReshapeHappened},
		{"as after, and the guest is gone", renewed, childGone, holdsNone, reportclient.ReshapeHappened},
		{"only the guest tells", third, childThen, holdsNew, reportclient.ReshapeHappened},
		{"as before, and another client wrote since", oldNext, childThen, holdsOld, reportclient.ReshapeRefused},
		{"neither", third, childThen, holdsNone, reportclient.ReshapeUnknown},
		{"half and half", renewed, childOld, holdsOld, reportclient.ReshapeUnknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			requests := &counter{fail: func(r *http.Request) (*http.Response, error) {
				body := map[string]string{
					"/resource_providers/" + id(cn1) + "/inventories": c.root, "/resource_providers/" + id(gpu0) +
						"/inventories": c.child, "/allocations/" + id(alice): c.consumer,
				}[r.URL.Path]
				if body == "" {
					return answer(http.StatusNotFound,
						placementError(404, "placement.undefined_code", "no such provider")), nil
				}
				return answer(http.StatusOK, body), nil
			}}
			client := newClient(t, "http://placement.invalid", func(c *reportclient.Config) { c.Transport = requests })
			got := testproc.Try(client.CompareReshape(t.Context(), oneMove(t).Reshape)).Or(t)
			testproc.Equal(t, got, c.want, "got %s")
			want(t, requests, "GET /resource_providers/#1/inventories",
				"GET /resource_providers/#2/inventories", "GET /allocations/#11")
		})
	}
}
