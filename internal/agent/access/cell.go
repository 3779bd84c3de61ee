// SPDX-License-Identifier: Apache-2.0

package access

import (
	"net/http"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// CellCredentials are the credentials of a client of cells.
type CellCredentials struct {
	// Section is the configuration section, and Prefix that of its keys, for errors.
	Section, Prefix                      string
	TokenFile, CAFile, CertFile, KeyFile string
}

// CellsOf returns the compute API's credentials for all cells.
func CellsOf(c config.ComputeAPI) CellCredentials {
	return CellCredentials{"compute_api", "cell_", c.CellTokenFile, c.CellCAFile, c.CellCertFile, c.CellKeyFile}
}

// CellOf returns the agent's credentials for its cell.
func CellOf(c config.CellClient) CellCredentials {
	return CellCredentials{"cell_client", "", c.TokenFile, c.CAFile, c.CertFile, c.KeyFile}
}

// Cell returns the configuration of a client of the cell at url, or an error about the files.
// Tokens are read for each request, and certificates again when they change, so that renewed ones
// need no restart.
func (c CellCredentials) Cell(url string, log zerolog.Logger) (cellclient.Config, error) {
	out := cellclient.Config{
		URL: url, Files: pki.ClientTLS{CAFile: c.CAFile,
			CertFile: c.CertFile, KeyFile: c.KeyFile, MinVersion: cellclient.MinTLS}, Logger: log,
	}
	if c.TokenFile != "" {
		out.Authorize = func(h http.Header) error { return putToken(h, c.keys("token_file"), c.TokenFile) }
	}
	if _, err := out.Files.Config(); err != nil {
		return cellclient.Config{}, withKeys(err, c.keys)
	}
	return out, nil
}

// keys returns the full names of keys.
func (c CellCredentials) keys(names ...string) string {
	whole := make([]string, len(names))
	for i, name := range names {
		whole[i] = c.Section + "." + c.Prefix + name
	}
	return strings.Join(whole, " and ")
}
