// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// Hosts authenticates the agents of hosts, and leaves all other clients to Others. A request with a
// token is authenticated by it, a request without one by the certificate of its connection. Both
// are checked with each request: a connection may outlive a certificate, or be open when its host
// is put on the deny list.
type Hosts struct {
	Others Authenticator
	// CAs are the CAs that sign certificates of hosts; nil: hosts have tokens only.
	CAs *CAFile
	// Denied is the deny list; nil: none.
	Denied *pki.DenyFile
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Authenticate implements [Authenticator].
func (h *Hosts) Authenticate(r *http.Request) (Principal, error) {
	if r.Header.Get(HeaderToken) != "" || r.Header.Get("Authorization") != "" || !h.CAs.signed(r.TLS) {
		p, err := h.Others.Authenticate(r)
		if err == nil && p.Host != nil {
			err = refused(h.Denied.Get().CheckIdentity(*p.Host))
		}
		if err != nil {
			return Principal{}, err
		}
		return p, nil
	}
	now := time.Now
	if h.Now != nil {
		now = h.Now
	}
	id, err := pki.Peer(r.TLS, now())
	if err == nil && id.Kind == pki.Service {
		err = fmt.Errorf("the certificate is of the service %s, not of a host", id.Name)
	}
	if err == nil {
		err = h.Denied.Get().CheckIdentity(id)
	}
	if err != nil {
		return Principal{}, refused(err)
	}
	return hostPrincipal(id), nil
}

// refused is the error for a host that is known and not let in.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return &Unauthenticated{Reason: "The host is not let in: " + err.Error() + "."}
}

// CAFile is the certificates of CAs in a file, as the file is now. Make one with OpenCAFile; a nil
// CAFile has none.
type CAFile struct {
	file *files.Reloaded[[]*x509.Certificate]
}

// OpenCAFile reads the certificates of CAs, in PEM. The file is looked at again while requests
// come, at most once a second. If it cannot be used then, the old ones stay, and log says so.
func OpenCAFile(path string, log zerolog.Logger) (*CAFile, error) {
	file, err := files.NewReloaded([]string{path}, log, nil, func(files []files.Content) ([]*x509.Certificate, error) {
		return pki.Certificates(files[0].Data, path)
	})
	if err != nil {
		return nil, fmt.Errorf("certificates of CAs: %w", err)
	}
	return &CAFile{file}, nil
}

// signed reports whether one of the CAs signed the certificate that the handshake has verified.
func (f *CAFile) signed(state *tls.ConnectionState) bool {
	if f == nil || state == nil || len(state.VerifiedChains) == 0 {
		return false
	}
	cas := f.file.Get()
	return slices.ContainsFunc(state.VerifiedChains, func(chain []*x509.Certificate) bool {
		return len(chain) > 1 && slices.ContainsFunc(cas, chain[len(chain)-1].Equal)
	})
}
