// SPDX-License-Identifier: Apache-2.0

package serverstate

import "github.com/compute-agent/compute-agent/cells/cellwire"

// Former is what a [cellwire.RebuildRequest] may change of a server, as it was before. The row says
// what the new guest is to be while the old one may still be there: if the old one is kept, the row
// describes that again.
type Former struct {
	ImageRef    string            `json:"image_ref,omitempty"`
	UserData    string            `json:"user_data,omitempty"`
	KeyName     string            `json:"key_name,omitempty"`
	KeyData     string            `json:"key_data,omitempty"`
	Name        string            `json:"name,omitempty"`
	Description *string           `json:"description,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	DiskConfig  string            `json:"disk_config,omitempty"`
	AccessIPv4  string            `json:"access_ip_v4,omitempty"`
	AccessIPv6  string            `json:"access_ip_v6,omitempty"`
}

// formerOf is that of a server. Nothing in it is changed in place.
func formerOf(s *cellwire.Server) *Former {
	return &Former{
		ImageRef: s.ImageRef, UserData: s.UserData, KeyName: s.KeyName, KeyData: s.KeyData,
		Name: s.Name, Description: s.Description,
		Metadata: s.Metadata, Tags: s.Tags, DiskConfig: s.DiskConfig,
		AccessIPv4: s.AccessIPv4, AccessIPv6: s.AccessIPv6,
	}
}

// restore makes a server what it was.
func (f *Former) restore(s *cellwire.Server) {
	s.ImageRef, s.UserData, s.KeyName, s.KeyData, s.Name, s.Description = f.ImageRef, f.UserData, f.KeyName,
		f.KeyData, f.Name, f.Description
	s.Metadata, s.Tags, s.DiskConfig, s.AccessIPv4, s.AccessIPv6 = f.Metadata, f.Tags,
		f.DiskConfig, f.AccessIPv4, f.AccessIPv6
}

// patched is f with a change that came since.
func (f *Former) patched(s cellwire.Server, patch cellwire.ServerPatch) (*Former, error) {
	f.restore(&s)
	if err := patch.Apply(&s); err != nil {
		return nil, err
	}
	return formerOf(&s), nil
}
