// SPDX-License-Identifier: Apache-2.0

package wire

import "github.com/compute-agent/compute-agent/internal/jsonkit"

// reader reads the bodies of requests; the methods beside it read what several bodies have.
type reader struct{ *jsonkit.Reader }

func newReader(body []byte) *reader { return &reader{jsonkit.NewReader(body)} }
