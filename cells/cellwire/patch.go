// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"net/http"
	"slices"
)

// ServerPatch changes what a server is called and marked with; nil changes nothing.
type ServerPatch struct {
	Name        *string `json:"name,omitempty"`
	Description *string `json:"description,omitempty"`
	// NoDescription removes the description.
	NoDescription bool           `json:"no_description,omitempty"`
	AccessIPv4    *string        `json:"access_ip_v4,omitempty"`
	AccessIPv6    *string        `json:"access_ip_v6,omitempty"`
	DiskConfig    *string        `json:"disk_config,omitempty"` // MANUAL or AUTO
	Metadata      *MetadataPatch `json:"metadata,omitempty"`
	Tags          *TagsPatch     `json:"tags,omitempty"`
}

// MetadataPatch changes the metadata of a server.
type MetadataPatch struct {
	// Replace removes all existing items, and Remove those with some keys, before the items of Set
	// are added.
	Replace bool              `json:"replace,omitempty"`
	Remove  []string          `json:"remove,omitempty"`
	Set     map[string]string `json:"set,omitempty"`
	// Most is how many items there may be afterwards; 0: any number.
	Most int64 `json:"most,omitempty"`
}

// TagsPatch changes the tags of a server.
type TagsPatch struct {
	Replace bool     `json:"replace,omitempty"`
	Remove  []string `json:"remove,omitempty"`
	Add     []string `json:"add,omitempty"`
}

// MaxTags is how many tags a server has at most, as in Nova.
const MaxTags = 50

// Check refuses the change for a server whose state does not allow it (conflict), in Nova's words.
func (p ServerPatch) Check(s *Server) error {
	check := func(action string) error {
		if s.VMState == VMActive || s.VMState == VMStopped {
			return nil
		}
		return &Error{
			Status: http.StatusConflict, Code: CodeConflict,
			Message: fmt.Sprintf("Cannot '%s' instance %s while it is in vm_state %s", action, s.UUID, s.VMState),
		}
	}
	if m := p.Metadata; m != nil {
		action := "update metadata"
		if len(m.Remove) > 0 {
			action = "delete metadata"
		}
		if err := check(action); err != nil {
			return err
		}
	}
	if t := p.Tags; t != nil {
		action := "update tag"
		switch {
		case t.Replace && len(t.Add) > 0:
			action = "update tags"
		case t.Replace:
			action = "delete tags"
		case len(t.Remove) > 0:
			action = "delete tag"
		}
		return check(action)
	}
	return nil
}

// Apply changes a server. Maps and slices that it had are left as they are. A refusal says that it
// would have too many items (over quota) or tags (bad request).
func (p ServerPatch) Apply(s *Server) error {
	for _, text := range []struct{ from, to *string }{{p.Name, &s.Name}, {p.AccessIPv4, &s.AccessIPv4},
		{p.AccessIPv6, &s.AccessIPv6}, {p.DiskConfig, &s.DiskConfig}} {
		if text.from != nil {
			*text.to = *text.from
		}
	}
	if p.Description != nil || p.NoDescription {
		s.Description = p.Description
	}
	if m := p.Metadata; m != nil {
		items := map[string]string{}
		for _, from := range []map[string]string{s.Metadata, m.Set} {
			for key, value := range from {
				if _, set := m.Set[key]; set || !m.Replace && !slices.Contains(m.Remove, key) {
					items[key] = value
				}
			}
		}
		if m.Most > 0 && int64(len(items)) > m.Most {
			return &Error{Status: http.StatusConflict,
				Code: CodeOverQuota, Message: fmt.Sprintf("Maximum number of metadata items exceeds %d", m.Most)}
		}
		s.Metadata = items
	}
	if t := p.Tags; t != nil {
		tags := []string{}
		if !t.Replace {
			for _, tag := range s.Tags {
				if !slices.Contains(t.Remove, tag) {
					tags = append(tags, tag)
				}
			}
		}
		for _, tag := range t.Add {
			if !slices.Contains(tags, tag) {
				tags = append(tags, tag)
			}
		}
		if len(tags) > MaxTags {
			return &Error{Status: http.StatusBadRequest,
				Code:    CodeBadRequest,
				Message: fmt.Sprintf("The number of tags exceeded the per-server limit %d", MaxTags)}
		}
		s.Tags = tags
	}
	return nil
}
