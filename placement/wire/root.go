// SPDX-License-Identifier: Apache-2.0

package wire

// Versions is the version document, GET /.
type Versions struct {
	Versions []VersionRange `json:"versions"`
}

// VersionRange is one major version of the API and the microversions that it has.
type VersionRange struct {
	ID         string `json:"id"`
	MaxVersion string `json:"max_version"`
	MinVersion string `json:"min_version"`
	Status     string `json:"status"`
	Links      []Link `json:"links"`
}

// Link points from a thing to others that belong to it.
type Link struct {
	Rel  string `json:"rel"`
	Href string `json:"href"`
}

// VersionDocument is the version document of this package's microversions. The empty link means
// "where you found this".
func VersionDocument() Versions {
	return Versions{Versions: []VersionRange{{
		ID:         "v" + MinVersion.String(),
		MaxVersion: MaxVersion.String(),
		MinVersion: MinVersion.String(),
		Status:     "CURRENT",
		Links:      []Link{{Rel: "self"}},
	}}}
}
