// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/compute-agent/compute-agent/internal/jsonkit"

// ErrorCode says in an error of the API what went wrong, for programs. Errors have codes from
// microversion 1.23 on.
type ErrorCode string

// The error codes of Placement.
const (
	CodeUndefined          ErrorCode = "placement.undefined_code"
	CodeInventoryInUse     ErrorCode = "placement.inventory.inuse"
	CodeConcurrentUpdate   ErrorCode = "placement.concurrent_update"
	CodeDuplicateName      ErrorCode = "placement.duplicate_name"
	CodeProviderInUse      ErrorCode = "placement.resource_provider.inuse"
	CodeCannotDeleteParent ErrorCode = "placement.resource_provider.cannot_delete_parent"
	CodeProviderNotFound   ErrorCode = "placement.resource_provider.not_found"
	CodeDuplicateQueryKey  ErrorCode = "placement.query.duplicate_key"
	CodeBadQueryValue      ErrorCode = "placement.query.bad_value"
	CodeMissingQueryValue  ErrorCode = "placement.query.missing_value"
)

// CodeHost is the code of a 403 for a host whose request is about providers or consumers that are
// not its own. OpenStack's Placement has no hosts.
const CodeHost ErrorCode = "placement.hosts.not_own"

// CodeHostCapacity is the code of a 403 for a host that reports more than it is admitted to.
const CodeHostCapacity ErrorCode = "placement.hosts.not_admitted"

// ErrorBody is the body of every answer with a status of 400 and more.
type ErrorBody struct {
	Errors []ErrorItem `json:"errors"`
}

// ErrorItem is one error. There is always exactly one in a body.
type ErrorItem struct {
	Status    int       `json:"status"`
	Title     string    `json:"title"`
	Detail    string    `json:"detail"`
	Code      ErrorCode `json:"code,omitempty"` // from 1.23
	RequestID string    `json:"request_id,omitempty"`
	// MaxVersion and MinVersion are there when the version that was asked for does not exist
	// (status 406).
	MaxVersion string `json:"max_version,omitempty"`
	MinVersion string `json:"min_version,omitempty"`
	// NotAdmitted are the resource classes and kinds of traits of a CodeHostCapacity that the host
	// may not report: all, or the first ones.
	NotAdmitted []string `json:"not_admitted,omitempty"`
}

// AppendJSON appends an error body with this one error.
func (e *ErrorItem) AppendJSON(b []byte) []byte {
	b = append(b, `{"errors":[{"status":`...)
	b = jsonkit.AppendInt(b, int64(e.Status))
	b = append(b, `,"title":`...)
	b = jsonkit.AppendString(b, e.Title)
	b = append(b, `,"detail":`...)
	b = jsonkit.AppendString(b, e.Detail)
	for _, f := range [...]struct{ key, value string }{
		{`,"code":`, string(e.Code)},
		{`,"request_id":`, e.RequestID},
		{`,"max_version":`, e.MaxVersion},
		{`,"min_version":`, e.MinVersion},
	} {
		if f.value != "" {
			b = append(b, f.key...)
			b = jsonkit.AppendString(b, f.value)
		}
	}
	if len(e.NotAdmitted) > 0 {
		b = jsonkit.AppendStrings(append(b, `,"not_admitted":`...), e.NotAdmitted)
	}
	return append(b, `}]}`...)
}
