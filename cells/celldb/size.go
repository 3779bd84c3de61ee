// SPDX-License-Identifier: Apache-2.0

package celldb

import "github.com/compute-agent/compute-agent/cells/cellwire"

// MaxAnswer bounds the servers of one answer, in bytes by their [Weight]: what does not fit comes
// with the next one. If every character has to be escaped an answer is six times as long as that,
// which is still less than the 64 MiB that clients read.
const MaxAnswer = 8 << 20

// Weight is the approximate size of a server in an answer in bytes, without escapes: nearly all of
// it is its owner's data.
func Weight(s cellwire.Server) int {
	const others = 1 << 10 // keys, states and times
	n := others + len(s.Name) + len(s.Hostname) + len(s.UserData) + len(s.ImageRef) + len(s.ProjectID) + len(s.UserID) +
		len(s.KeyName) + len(s.KeyData)
	if s.Description != nil {
		n += len(*s.Description)
	}
	if s.Fault != nil {
		n += len(s.Fault.Message) + len(s.Fault.Details)
	}
	for _, texts := range []map[string]string{s.Metadata, s.Flavor.ExtraSpecs} {
		for key, value := range texts {
			n += len(key) + len(value) + 6
		}
	}
	for _, texts := range [][]string{s.Tags, s.TrustedCerts} {
		for _, text := range texts {
			n += len(text) + 3
		}
	}
	return n
}
