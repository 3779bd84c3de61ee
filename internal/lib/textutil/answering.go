// SPDX-License-Identifier: Apache-2.0

package textutil

import (
	"encoding/json"
	"strings"
)

// Answering names the service that gave an answer, by its headers, with canonical keys, and its
// body; "" if that is not known. It is for errors about a URL that points to another service.
func Answering(header map[string][]string, body []byte) string {
	first := func(key string) string {
		if values := header[key]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
	const placement, compute, keystone = "a Placement", "a compute API", "a Keystone"
	switch kind, _, _ := strings.Cut(first("Openstack-Api-Version"), " "); kind {
	case "placement":
		return placement
	case "compute":
		return compute
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) == nil {
		var versions []struct {
			Max     string  `json:"max_version"`
			Version *string `json:"version"`
		}
		var fault struct {
			Code    json.Number `json:"code"`
			Message string      `json:"message"`
			Title   string      `json:"title"`
		}
		var cell struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		}
		is := func(name string, value any) bool {
			return members[name] != nil && json.Unmarshal(members[name], value) == nil
		}
		var errs []struct {
			Status int    `json:"status"`
			Title  string `json:"title"`
		}
		switch {
		case is("versions", &versions) && len(versions) > 0 && versions[0].Max != "", is("errors", &errs) &&
			len(errs) > 0 && errs[0].Status > 0:
			return placement
		case is("versions", &versions) && len(versions) > 0 && versions[0].Version != nil:
			return compute
		case strings.HasPrefix(string(members["versions"]), "{"), is("error", &fault) && fault.Title != "":
			return keystone
		case json.Unmarshal(body, &cell) == nil && cell.Code != "" && cell.Message != "":
			return "a cell of compute-agent"
		}
		for name := range members {
			if len(members) == 1 && is(name, &fault) && fault.Code != "" && fault.Message != "" {
				return compute
			}
		}
	}
	if strings.HasPrefix(first("Www-Authenticate"), "Keystone ") {
		return "another service of OpenStack"
	}
	return ""
}
