// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
)

// ClientTLS says how a client reaches services by TLS. The zero ClientTLS trusts the system's CAs
// and shows no certificate.
type ClientTLS struct {
	// CAFile has the certificates of the CAs to trust instead of the system's, in PEM.
	CAFile string
	// CertFile and KeyFile are those of the certificate to show.
	CertFile, KeyFile string
	// MinVersion is the oldest version of TLS; 1.2 when zero.
	MinVersion uint16
}

// Errors about the files of a ClientTLS.
var (
	ErrCAFile      = errors.New("the certificates to trust")
	ErrCertificate = errors.New("the certificate to show")
)

// files are those of the configuration.
func (t ClientTLS) files() (paths []string) {
	for _, path := range []string{t.CAFile, t.CertFile, t.KeyFile} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	return paths
}

// Config reads the files. Errors wrap ErrCAFile or ErrCertificate. The certificate is read again
// for each connection.
func (t ClientTLS) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: max(t.MinVersion, tls.VersionTLS12)}
	if t.CAFile != "" {
		var err error
		if config.RootCAs, err = CertPool(t.CAFile); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCAFile, err)
		}
	}
	if t.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCertificate, err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &pair, err
		}
	}
	return config, nil
}

// Transport returns what carries requests by the http.Transport that make returns. When a file has
// changed it is made again, and requests get new connections: servers refuse those of a certificate
// that has expired. If the files cannot be used then, the old ones stay, and log says so.
// now is the clock; time.Now when nil.
func (t ClientTLS) Transport(log zerolog.Logger, now func() time.Time, make func(*tls.Config) *http.Transport) (http.RoundTripper, error) {
	paths := t.files()
	if len(paths) == 0 {
		config, err := t.Config()
		if err != nil {
			return nil, err
		}
		return make(config), nil
	}
	if _, err := t.Config(); err != nil { // it says which file is wrong
		return nil, err
	}
	var last *http.Transport
	current, err := files.NewReloaded(paths, log, now, func([]files.Content) (*http.Transport, error) {
		config, err := t.Config()
		if err != nil {
			return nil, err
		}
		if last != nil {
			last.CloseIdleConnections() // the others end by their idle timeout
		}
		last = make(config)
		return last, nil
	})
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return &reloadedTransport{current}, nil
}

// reloadedTransport is an http.Transport that is made again when its files change.
type reloadedTransport struct {
	current *files.Reloaded[*http.Transport]
}

// RoundTrip implements http.RoundTripper.
func (t *reloadedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.current.Get().RoundTrip(r)
}

// CloseIdleConnections closes the connections that are not in use.
func (t *reloadedTransport) CloseIdleConnections() { t.current.Get().CloseIdleConnections() }
