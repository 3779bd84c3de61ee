// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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

// files returns the paths that are configured.
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
			return nil, fmt.Errorf("%w: %w", ErrCertificate, files.Denied(err))
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &pair, files.Denied(err)
		}
	}
	return config, nil
}

// Transport returns what carries requests by the http.Transport that make returns. When a file has
// changed it is made again, and requests get new connections: servers refuse those of a certificate
// that has expired. If the files cannot be used then, the old ones stay, and log says so.
// now is the clock; time.Now when nil.
func (t ClientTLS) Transport(
	log zerolog.Logger, now func() time.Time, make func(*tls.Config) *http.Transport,
) (*Transport, error) {
	paths := t.files()
	if len(paths) == 0 {
		config, err := t.Config()
		if err != nil {
			return nil, err
		}
		plain := make(config)
		return &Transport{of: func() *http.Transport { return plain }, trust: t.CAFile}, nil
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
	return &Transport{of: current.Get, trust: t.CAFile}, nil
}

// Transport is an http.Transport that may be another one when files have changed. It says which
// certificates were trusted when those of a server are not.
type Transport struct {
	of    func() *http.Transport
	trust string // the file of the CAs, "" for the system's
}

// Current is the http.Transport that carries requests now.
func (t *Transport) Current() *http.Transport { return t.of() }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.of().RoundTrip(r)
	return resp, t.explain(err)
}

// CloseIdleConnections closes the connections that are not in use.
func (t *Transport) CloseIdleConnections() { t.of().CloseIdleConnections() }

// explain adds to the error of a server whose CA is not trusted which CA that is, and which ones
// are trusted. Its type stays.
func (t *Transport) explain(err error) error {
	var unverified *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unverified) || !errors.As(err, &unknown) || len(unverified.UnverifiedCertificates) == 0 {
		return err
	}
	chain := unverified.UnverifiedCertificates
	return &tls.CertificateVerificationError{UnverifiedCertificates: chain,
		Err: fmt.Errorf("%w: the server's certificate is of the CA %q, and %s", unverified.Err,
			chain[len(chain)-1].Issuer.CommonName, t.trusted())}
}

// trusted describes the CAs that are trusted.
func (t *Transport) trusted() string {
	if t.trust == "" {
		return "the CAs of the system are trusted; name its CA in ca_file"
	}
	content, err := files.Read(t.trust)
	if err != nil {
		return err.Error()
	}
	all, err := Certificates(content.Data, t.trust)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, c := range all[:min(len(all), maxNamed)] {
		names = append(names, strconv.Quote(c.Subject.CommonName))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s has %s", t.trust, strings.Join(names, ", "))
}

// maxNamed is how many CAs an error names.
const maxNamed = 3
