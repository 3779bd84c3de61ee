// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/compute-agent/compute-agent/internal/jsonkit"

// reader reads the bodies of requests; the methods beside it read what several bodies have.
type reader struct{ *jsonkit.Reader }

func newReader(body []byte) *reader { return &reader{jsonkit.NewReader(body)} }

// finish makes sure that the body ends where what was read of it does.
func (r *reader) finish(err error) error {
	if err == nil {
		err = r.End()
	}
	return err
}
