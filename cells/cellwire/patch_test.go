// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestServerPatch: what becomes of a server, and that what it had is left as it was.
func TestServerPatch(t *testing.T) {
	name, none := "other", ""
	many := make([]string, MaxTags)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for title, c := range map[string]struct {
		patch   ServerPatch
		change  func(*Server)
		refusal Code
	}{
		"nothing": {patch: ServerPatch{}, change: func(*Server) {}},
		"a name":  {patch: ServerPatch{Name: &name}, change: func(s *Server) { s.Name = name }},
		"no address": {patch: ServerPatch{AccessIPv4: &none},
			change: func(s *Server) { s.AccessIPv4 = "" }},
		"a description": {patch: ServerPatch{Description: &name},
			change: func(s *Server) { s.Description = &name }},
		"no description": {patch: ServerPatch{NoDescription: true},
			change: func(s *Server) { s.Description = nil }},
		"an item more": {patch: ServerPatch{Metadata: &MetadataPatch{Set: map[string]string{"c": "3"},
			Most: 3}}, change: func(s *Server) { s.Metadata = map[string]string{"a": "1", "b": "2", "c": "3"} }},
		"an item too many": {patch: ServerPatch{Metadata: &MetadataPatch{Set: map[string]string{"c": "3"},
			Most: 2}}, change: func(*Server) {}, refusal: CodeOverQuota},
		"another value": {patch: ServerPatch{Metadata: &MetadataPatch{Set: map[string]string{"a": "3"},
			Most: 2}}, change: func(s *Server) { s.Metadata = map[string]string{"a": "3", "b": "2"} }},
		"other items": {patch: ServerPatch{Metadata: &MetadataPatch{Replace: true,
			Set: map[string]string{"a": "3"}}}, change: func(s *Server) { s.Metadata = map[string]string{"a": "3"} }},
		"an item less": {patch: ServerPatch{Metadata: &MetadataPatch{Remove: []string{"a", "z"}}},
			change: func(s *Server) { s.Metadata = map[string]string{"b": "2"} }},
		"a tag more": {patch: ServerPatch{Tags: &TagsPatch{Add: []string{"z", "x"}}},
			change: func(s *Server) { s.Tags = []string{"x", "y", "z"} }},
		"a tag less": {patch: ServerPatch{Tags: &TagsPatch{Remove: []string{"x", "z"}}},
			change: func(s *Server) { s.Tags = []string{"y"} }},
		"other tags": {patch: ServerPatch{Tags: &TagsPatch{Replace: true, Add: []string{"z", "z"}}},
			change: func(s *Server) { s.Tags = []string{"z"} }},
		"no tags": {patch: ServerPatch{Tags: &TagsPatch{Replace: true}},
			change: func(s *Server) { s.Tags = []string{} }},
		"as many tags as may be": {patch: ServerPatch{Tags: &TagsPatch{Replace: true, Add: many}},
			change: func(s *Server) { s.Tags = many }},
		"more tags than there may": {patch: ServerPatch{Tags: &TagsPatch{Add: many}},
			change: func(*Server) {}, refusal: CodeBadRequest},
	} {
		t.Run(title, func(t *testing.T) {
			before := func() Server {
				return Server{Name: "one", Description: &none, AccessIPv4: "10.0.0.1",
					Metadata: map[string]string{"a": "1", "b": "2"}, Tags: []string{"x", "y"}}
			}
			is, was, want := before(), before(), before()
			after := was
			var refusal *Error
			if err := c.patch.Apply(&after); errors.As(err, &refusal) != (c.refusal != "") ||
				refusal != nil && refusal.Code != c.refusal {
				t.Fatalf("%v, not a refusal %q", err, c.refusal)
			}
			testproc.Samef(t, cmp.Diff(is, was), "what the server had is changed (-before +after)")
			if c.change(&want); refusal == nil {
				testproc.Same(t, cmp.Diff(want, after))
			}
		})
	}
}
