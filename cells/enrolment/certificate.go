// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/pki"
)

// serverLifetime is how long a certificate of the service is valid. It is renewed at half of it.
const serverLifetime = 24 * time.Hour

// serviceName is the name of the service in its certificate.
const serviceName = "enrolment"

// serverCertificate is the certificate of the service: of its own CA, in memory only. The CA's
// certificate follows it, so that a host that has only the fingerprint can verify it.
type serverCertificate struct {
	authority *pki.Authority
	names     []string
	addresses []net.IP
	now       func() time.Time

	mu      sync.Mutex
	current *tls.Certificate
	renew   time.Time
}

func newServerCertificate(authority *pki.Authority, names []string, now func() time.Time) (*serverCertificate, error) {
	c := &serverCertificate{authority: authority, now: now}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			c.addresses = append(c.addresses, address)
			continue
		}
		if err := pki.CheckName(name); err != nil {
			return nil, fmt.Errorf("the names of the enrolment service: %w", err)
		}
		c.names = append(c.names, name)
	}
	if len(names) == 0 {
		return nil, errors.New("the enrolment service has no name by which hosts reach it")
	}
	_, err := c.get()
	return c, err
}

// get is the certificate for a handshake. If a new one cannot be made, the old one stays.
func (c *serverCertificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	early := c.current != nil && now.Before(c.current.Leaf.NotBefore) // a clock that was ahead has made it
	if c.current != nil && now.Before(c.renew) && !early {
		return c.current, nil
	}
	made, err := c.make(now)
	if err != nil {
		if c.current != nil {
			return c.current, nil
		}
		return nil, err
	}
	c.current, c.renew = made, now.Add(serverLifetime/2)
	return made, nil
}

func (c *serverCertificate) make(now time.Time) (*tls.Certificate, error) {
	key, keyPEM, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	csr, err := pki.NewRequest(key, serviceName)
	if err != nil {
		return nil, err
	}
	request, err := pki.ParseRequest(csr)
	if err != nil {
		return nil, err
	}
	id := pki.Identity{Kind: pki.Service, Name: serviceName, Names: c.names}
	certificate, err := c.authority.Sign(request, id,
		pki.SignOptions{Lifetime: serverLifetime, Now: now, Addresses: c.addresses})
	if err != nil {
		return nil, fmt.Errorf("the certificate of the enrolment service: %w", err)
	}
	pair, err := tls.X509KeyPair(append(certificate, c.authority.PEM()...), keyPEM)
	return &pair, err
}
