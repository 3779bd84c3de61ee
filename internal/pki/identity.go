// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Kind is what a certificate says of itself.
type Kind int

// The kinds.
const (
	// Unmarked certificates say nothing: they are of a CA that does not know the URIs.
	Unmarked Kind = iota
	Host
	Service
)

// The URIs of certificates begin so.
const (
	hostURN    = "urn:compute-agent:host:"
	serviceURN = "urn:compute-agent:service:"
	cellURN    = "urn:compute-agent:cell:"
	nodeURN    = "urn:uuid:"
)

// Identity is who a certificate is for.
type Identity struct {
	Kind Kind
	// Name is the name of the host or the service; of an unmarked certificate, the first of Names.
	Name string
	// Names are the common name and the DNS names, without repetition. Of a host they are its own
	// name and those of its compute nodes.
	Names []string
	// Nodes are the uuids of the compute nodes that a host was enrolled for; none if the
	// certificate does not say.
	Nodes []string
	// Cell is the name of the cell that a host was enrolled for; "" if the certificate does not
	// say.
	Cell string
	// Issued and Expires bound its validity.
	Issued, Expires time.Time
}

// Errors about certificates.
var (
	// ErrNoCertificate: the client has shown none, or none that was verified.
	ErrNoCertificate = errors.New("the connection has no verified client certificate")
	// ErrExpired: the certificate is not valid now. It was when the connection was made.
	ErrExpired = errors.New("the client certificate is not valid now")
	// ErrInvalid: the certificate contradicts itself.
	ErrInvalid = errors.New("the certificate cannot be used")
)

// IdentityOf returns who a certificate is for. ErrInvalid for one that has several identities,
// none, or an invalid uuid.
func IdentityOf(c *x509.Certificate) (Identity, error) {
	id := Identity{Issued: c.NotBefore, Expires: c.NotAfter}
	for _, name := range append([]string{c.Subject.CommonName}, c.DNSNames...) {
		if name != "" && !slices.Contains(id.Names, name) {
			id.Names = append(id.Names, name)
		}
	}
	for _, u := range c.URIs {
		if err := id.read(u.String()); err != nil {
			return Identity{}, err
		}
	}
	switch {
	case id.Kind == Unmarked && len(id.Names) == 0:
		return Identity{}, fmt.Errorf("%w: it has neither a common name nor a DNS name", ErrInvalid)
	case id.Kind == Unmarked:
		id.Name, id.Nodes, id.Cell = id.Names[0], nil, ""
	case id.Kind == Service && (len(id.Nodes) > 0 || id.Cell != ""):
		return Identity{}, fmt.Errorf("%w: it is of the service %q, and has compute nodes or a cell, as that of a host",
			ErrInvalid, id.Name)
	}
	return id, nil
}

// read takes one URI of a certificate; those of others mean nothing here.
func (id *Identity) read(uri string) error {
	for prefix, kind := range map[string]Kind{hostURN: Host, serviceURN: Service} {
		escaped, found := strings.CutPrefix(uri, prefix)
		if !found {
			continue
		}
		name, err := url.PathUnescape(escaped)
		if err != nil || name == "" {
			return fmt.Errorf("%w: its URI %.300q has no name", ErrInvalid, uri)
		}
		if id.Kind != Unmarked {
			return fmt.Errorf("%w: it is of %q and of %q", ErrInvalid, id.Name, name)
		}
		id.Kind, id.Name = kind, name
		return nil
	}
	if escaped, found := strings.CutPrefix(uri, cellURN); found {
		name, err := url.PathUnescape(escaped)
		if err != nil || name == "" {
			return fmt.Errorf("%w: its URI %.300q has no name of a cell", ErrInvalid, uri)
		}
		if id.Cell != "" {
			return fmt.Errorf("%w: it is for the cells %q and %q", ErrInvalid, id.Cell, name)
		}
		id.Cell = name
	}
	if text, found := strings.CutPrefix(uri, nodeURN); found {
		node, err := uuid.Parse(text)
		if err != nil {
			return fmt.Errorf("%w: its URI %.300q has no uuid", ErrInvalid, uri)
		}
		id.Nodes = append(id.Nodes, node.String())
	}
	return nil
}

// URIs returns the URIs (subject alternative names) of a certificate for the identity.
func (id Identity) URIs() []*url.URL {
	prefix := hostURN
	switch id.Kind {
	case Unmarked:
		return nil
	case Service:
		prefix = serviceURN
	case Host:
	}
	uris := []*url.URL{{Scheme: "urn", Opaque: strings.TrimPrefix(prefix, "urn:") + url.PathEscape(id.Name)}}
	for _, node := range id.Nodes {
		uris = append(uris, &url.URL{Scheme: "urn", Opaque: "uuid:" + node})
	}
	if id.Cell != "" {
		uris = append(uris,
			&url.URL{Scheme: "urn", Opaque: strings.TrimPrefix(cellURN, "urn:") + url.PathEscape(id.Cell)})
	}
	return uris
}

// HasName reports whether a resource provider or a compute node of that name may be the host's: it
// is one of its names, or one of them with a domain ("host1.example.com" of "host1").
func (id Identity) HasName(name string) bool {
	return slices.ContainsFunc(id.Names, func(own string) bool {
		return name == own || !strings.Contains(own, ".") && strings.HasPrefix(name, own+".")
	}) || id.Kind == Host &&
		(name == id.Name || !strings.Contains(id.Name, ".") && strings.HasPrefix(name, id.Name+"."))
}

// HasProvider reports whether a resource provider of that name may be in a tree of the host: one of
// HasName, or one that begins with that and a character of no DNS name, as "host1_gpu_0".
func (id Identity) HasProvider(name string) bool {
	for i, r := range name {
		if notOfDNS(r) && id.HasName(name[:i]) {
			return true
		}
	}
	return id.HasName(name)
}

// notOfDNS reports whether a character is in no name of the DNS. Names of hosts may have "_" all
// the same: see [NamesOverlap].
func notOfDNS(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
}

// NamesOverlap reports whether two hosts with these names could be in the way of each other: one of
// the names may be that of a provider of the other host. Case does not count, as in the DNS.
func NamesOverlap(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return Identity{Names: []string{a}}.HasProvider(b) || Identity{Names: []string{b}}.HasProvider(a)
}

// HasNode reports whether a compute node may be the host's: one of the certificate, or any if that
// does not say.
func (id Identity) HasNode(node string) bool {
	return len(id.Nodes) == 0 || slices.Contains(id.Nodes, node)
}

// Peer returns the identity of the client of a connection, whose certificate the handshake has
// verified, if it is valid still. Cost: a few allocations.
func Peer(state *tls.ConnectionState, now time.Time) (Identity, error) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return Identity{}, ErrNoCertificate
	}
	c := state.VerifiedChains[0][0]
	if now.Before(c.NotBefore) || now.After(c.NotAfter) {
		return Identity{}, fmt.Errorf("%w: it is valid from %s until %s",
			ErrExpired, rfc3339(c.NotBefore), rfc3339(c.NotAfter))
	}
	return IdentityOf(c)
}

// HostIdentity is the identity of a host, its cell ("" for none) and its compute nodes, by uuid.
func HostIdentity(host, cell string, nodes []string) (Identity, error) {
	id := Identity{Kind: Host, Name: host, Names: []string{host}, Cell: cell}
	if err := CheckName(host); err != nil {
		return id, fmt.Errorf("--host: %w", err)
	}
	for _, text := range nodes {
		node, err := uuid.Parse(text)
		if err != nil {
			return id, fmt.Errorf("--node: %q is not a UUID", text)
		}
		id.Nodes = append(id.Nodes, node.String())
	}
	return id, nil
}
