// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// TLSFiles says how a service is reached by TLS. The zero TLSFiles are
// plain HTTP. The files are looked at again while connections come, at most once a second, and new
// connections use what they say then; files that cannot be used leave in force what was, and the
// log says so.
type TLSFiles struct {
	// CertFile has the certificate of the service, in PEM, and those between it and its CA. KeyFile
	// has its key; it must not be readable for everybody.
	CertFile, KeyFile string
	// ClientCAFile has the certificates of CAs. With it clients must show a certificate that one of
	// them has signed, beside what Auth asks of them: it says who may connect, not who they are.
	ClientCAFile string
	// HostCAFile has the certificates of the CAs of hosts. Clients may show a certificate that one
	// of them has signed, and [Hosts] says which host that is.
	HostCAFile string
	// MinVersion is the oldest version of TLS; 1.2 when zero, which all clients of OpenStack speak.
	MinVersion uint16
}

// Config is nil for the zero TLSFiles. now is the clock; time.Now when nil.
func (t TLSFiles) Config(log zerolog.Logger, now func() time.Time) (*tls.Config, error) {
	switch {
	case t == (TLSFiles{MinVersion: t.MinVersion}):
		return nil, nil
	case t.CertFile == "" || t.KeyFile == "":
		return nil, errors.New("TLS needs a certificate and its key")
	}
	if now == nil {
		now = time.Now
	}
	if t.MinVersion == 0 {
		t.MinVersion = tls.VersionTLS12
	}
	paths := []string{t.CertFile, t.KeyFile}
	for _, path := range []string{t.ClientCAFile, t.HostCAFile} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	current, err := files.NewReloaded(paths, log, now, func(files []files.Content) (*tls.Config, error) {
		return t.read(files, log, now())
	})
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return &tls.Config{
		MinVersion:         t.MinVersion,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Get(), nil },
	}, nil
}

// read makes the configuration of one connection from the files.
func (t TLSFiles) read(files []files.Content, log zerolog.Logger, now time.Time) (*tls.Config, error) {
	if err := files[1].Private(); err != nil {
		return nil, fmt.Errorf("the key %w", err)
	}
	pair, err := tls.X509KeyPair(files[0].Data, files[1].Data)
	if err != nil {
		return nil, fmt.Errorf("the certificate %s with the key %s: %w", t.CertFile, t.KeyFile, err)
	}
	warnOfTime(log, t.CertFile, pair.Leaf, now, "Clients will refuse to connect")
	config := &tls.Config{
		MinVersion:   t.MinVersion,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if len(files) == 2 {
		return config, nil
	}
	config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
	if t.ClientCAFile != "" {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	for _, file := range files[2:] {
		cas, err := pki.Certificates(file.Data, file.Path)
		if err != nil {
			return nil, err
		}
		for _, ca := range cas {
			config.ClientCAs.AddCert(ca)
			warnOfTime(log, file.Path, ca, now, "Clients with certificates of this CA are refused")
		}
	}
	return config, nil
}

// warnBefore is the remaining validity of a certificate below which a warning is logged: a week, or
// a third of its life if that is shorter.
func warnBefore(c *x509.Certificate) time.Duration {
	return min(7*24*time.Hour, c.NotAfter.Sub(c.NotBefore)/3)
}

// warnOfTime logs a certificate that is not valid, or expires soon.
func warnOfTime(log zerolog.Logger, path string, c *x509.Certificate, now time.Time, consequence string) {
	log = log.With().Str("file", path).Stringer("subject", c.Subject).Time("not_before", c.NotBefore).
		Time("not_after", c.NotAfter).Logger()
	switch {
	case now.After(c.NotAfter):
		log.Error().Msg("A certificate has expired. " +
			consequence + ". Replace the file; it is read again when it changes.")
	case now.Before(c.NotBefore):
		log.Error().Msg("A certificate is not valid yet. " + consequence +
			". Replace the file, or check the clock of this machine.")
	case now.Add(warnBefore(c)).After(c.NotAfter):
		log.Warn().Msg("A certificate expires soon. Replace the file in time; it is read again when it changes.")
	}
}
