// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/internal/config"
)

// CellCredentials are how a cell is convinced of who we are, and it us.
type CellCredentials struct {
	// Section is the one of the configuration that has them, and Prefix what its keys begin with, for errors.
	Section, Prefix                      string
	TokenFile, CAFile, CertFile, KeyFile string
}

// CellsOf are the credentials of the compute API at all cells.
func CellsOf(c config.ComputeAPI) CellCredentials {
	return CellCredentials{"compute_api", "cell_", c.CellTokenFile, c.CellCAFile, c.CellCertFile, c.CellKeyFile}
}

// CellOf are the credentials of an agent at its cell.
func CellOf(c config.CellClient) CellCredentials {
	return CellCredentials{"cell_client", "", c.TokenFile, c.CAFile, c.CertFile, c.KeyFile}
}

// Cell is the configuration of a client of the cell at url. Tokens are read for each request and the certificate for each connection, so
// that renewed ones need no restart.
func (c CellCredentials) Cell(url string) (cellclient.Config, error) {
	out := cellclient.Config{URL: url}
	if c.TokenFile != "" {
		out.Authorize = func(h http.Header) error {
			token, err := config.ReadSecret(c.TokenFile)
			if err != nil {
				return fmt.Errorf("%s: %w", c.key("token_file"), err)
			}
			h.Set("X-Auth-Token", token.Reveal())
			return nil
		}
	}
	if c.CAFile == "" && c.CertFile == "" {
		return out, nil
	}
	out.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return cellclient.Config{}, fmt.Errorf("%s: %w", c.key("ca_file"), err)
		}
		out.TLS.RootCAs = x509.NewCertPool()
		if !out.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return cellclient.Config{}, fmt.Errorf("%s: %s holds no certificate in PEM form", c.key("ca_file"), c.CAFile)
		}
	}
	if c.CertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			return cellclient.Config{}, fmt.Errorf("%s and %s: %w", c.key("cert_file"), c.key("key_file"), err)
		}
		out.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &pair, err
		}
	}
	return out, nil
}

func (c CellCredentials) key(name string) string { return c.Section + "." + c.Prefix + name }
