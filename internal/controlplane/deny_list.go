// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// OpenDenyList opens the list of [deny_list]; nil if none is configured.
//
// Errors: [config.ErrInvalid].
func OpenDenyList(c config.DenyList, log zerolog.Logger) (*pki.DenyFile, error) {
	switch {
	case c.File == "":
		return nil, nil // none is configured
	case c.URL == "":
		denied, err := pki.OpenDenyFile(c.File, log)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf(
				"%w: deny_list.file: %w; make an empty list with: compute-agent ca deny-list --create --file %s",
				config.ErrInvalid, err, c.File)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: deny_list.file: %w", config.ErrInvalid, err)
		}
		return denied.RefuseAfter(c.AgeLimit()), nil
	}
	transport, err := pki.ClientTLS{CAFile: c.CAFile, MinVersion: tls.VersionTLS13}.Transport(log, nil,
		func(trust *tls.Config) *http.Transport {
			return &http.Transport{
				TLSClientConfig: trust, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
				TLSHandshakeTimeout:    5 * time.Second,
				MaxResponseHeaderBytes: 64 << 10, DisableKeepAlives: true,
			}
		})
	if err != nil {
		return nil, fmt.Errorf("%w: deny_list.ca_file: %w", config.ErrInvalid, err)
	}
	denied, err := pki.FollowDenyFile(c.File, pki.Source{URL: c.URL, Transport: transport}, log)
	if err != nil {
		return nil, fmt.Errorf("%w: deny_list.url: %w", config.ErrInvalid, err)
	}
	return denied.RefuseAfter(c.AgeLimit()), nil
}
