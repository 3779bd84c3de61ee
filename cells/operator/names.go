// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// HostNames returns the names of the hosts that are mapped or have an enrolment. One that is and
// has both is there twice.
func HostNames(ctx context.Context, store apidb.Store) (hosts []string, err error) {
	mapped, err := store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	enrolments, err := store.Enrolments(ctx)
	for _, h := range mapped {
		hosts = append(hosts, h.Host)
	}
	for _, e := range enrolments {
		hosts = append(hosts, e.Host)
	}
	return hosts, err
}

// KnownName returns the host of a name, whose case does not count; "" without one.
func KnownName(name string, hosts []string) string {
	if slices.Contains(hosts, name) {
		return name
	}
	for _, host := range hosts {
		if strings.EqualFold(host, name) {
			return host
		}
	}
	return ""
}

// Suggestion returns "; did you mean H?" with the host that a name is most like, or "".
func Suggestion(name string, hosts []string) string {
	short, _, _ := strings.Cut(name, ".")
	for _, host := range hosts {
		if head, _, _ := strings.Cut(host, "."); strings.EqualFold(head, short) {
			return fmt.Sprintf("; did you mean %s?", host)
		}
	}
	if near := textutil.Suggest(name, hosts, 2); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// cellName is the name of a cell, or its uuid if it is gone.
func cellName(uuid string, known []apidb.Cell) string {
	for _, c := range known {
		if c.UUID == uuid {
			return c.Name
		}
	}
	return uuid
}
