// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// clientTLS returns TLS with the authorities of a file and a client certificate, both optional.
// keys returns configuration keys for errors. The certificate is read for each connection, so that
// a renewed one needs no restart.
func clientTLS(keys func(names ...string) string, caFile, certFile, keyFile string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		var err error
		if c.RootCAs, err = osapi.CertPool(caFile); err != nil {
			return nil, fmt.Errorf("%s: %w", keys("ca_file"), err)
		}
	}
	if certFile != "" {
		if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
			return nil, fmt.Errorf("%s: %w", keys("cert_file", "key_file"), err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &pair, err
		}
	}
	return c, nil
}
