// SPDX-License-Identifier: Apache-2.0

package placement

import "github.com/compute-agent/compute-agent/internal/servertls"

// TLS says how a service is reached by TLS. The zero TLS is plain HTTP.
type TLS = servertls.Files
