// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const node = "7f0ba24e-2e4f-4a07-8a4e-0a3a8b1b5d55"

func certificate(t *testing.T, name string, dns []string, uris ...string) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: dns, NotBefore: time.Unix(1000, 0),
		NotAfter: time.Unix(2000, 0)}
	for _, text := range uris {
		u := testproc.Try(url.Parse(text)).Or(t)
		c.URIs = append(c.URIs, u)
	}
	return c
}

func TestIdentityOfACertificate(t *testing.T) {
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		kind        pki.Kind
		is          string
		names       []string
		nodes       []string
		invalid     bool
	}{
		"a host": {certificate(t, "h1", []string{"h1", "gpu"}, "urn:compute-agent:host:h1",
			"urn:uuid:"+node), pki.Host, "h1", []string{"h1", "gpu"}, []string{node}, false},
		"a host of another name": {certificate(t, "compute-api", nil, "urn:compute-agent:host:h1"), pki.Host,
			"h1", []string{"compute-api"}, nil, false},
		"a service": {certificate(t, "x", nil, "urn:compute-agent:service:cell1"), pki.Service,
			"cell1", []string{"x"}, nil, false},
		"unmarked": {certificate(t, "h1", []string{"h2", "h1"}, "https://example.com"), pki.Unmarked,
			"h1", []string{"h1", "h2"}, nil, false},
		"unmarked, with a uuid": {certificate(t, "h1", nil, "urn:uuid:"+node), pki.Unmarked,
			"h1", []string{"h1"}, nil, false},
		"an escaped name": {certificate(t, "", nil, "urn:compute-agent:host:a%2Fb"),
			pki.Host, "a/b", nil, nil, false},
		"no name": {certificate: certificate(t, "", nil), invalid: true},
		"a host with a cell": {certificate(t, "h1", nil, "urn:compute-agent:host:h1",
			"urn:compute-agent:cell:cell%201"), pki.Host, "h1", []string{"h1"}, nil, false},
		"two hosts": {certificate: certificate(t, "", nil, "urn:compute-agent:host:a",
			"urn:compute-agent:host:b"), invalid: true},
		"a host and a service": {certificate: certificate(t, "", nil, "urn:compute-agent:host:a",
			"urn:compute-agent:service:a"), invalid: true},
		"a host without a name": {certificate: certificate(t, "a", nil, "urn:compute-agent:host:"), invalid: true},
		"a node that is no uuid": {certificate: certificate(t, "a", nil, "urn:compute-agent:host:a", "urn:uuid:7"),
			invalid: true},
		"two cells": {certificate: certificate(t, "a", nil, "urn:compute-agent:host:a",
			"urn:compute-agent:cell:a", "urn:compute-agent:cell:b"), invalid: true},
		"a cell without a name": {certificate: certificate(t, "a", nil, "urn:compute-agent:host:a",
			"urn:compute-agent:cell:"), invalid: true},
		"a service with a cell": {certificate: certificate(t, "a", nil, "urn:compute-agent:service:a",
			"urn:compute-agent:cell:a"), invalid: true},
		"a service that has nodes": {certificate: certificate(t, "a", nil, "urn:compute-agent:service:a",
			"urn:uuid:"+node), invalid: true},
	} {
		got, err := pki.IdentityOf(c.certificate)
		if c.invalid {
			testproc.ErrorIs(t, err, pki.ErrInvalid, "%s: %+v, %v", name, got)
			continue
		}
		if err != nil || got.Kind != c.kind || got.Name != c.is || !slices.Equal(got.Names, c.names) ||
			!slices.Equal(got.Nodes, c.nodes) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestURIsAreReadBack(t *testing.T) {
	for _, id := range []pki.Identity{
		{Kind: pki.Host, Name: "h1", Nodes: []string{node}},
		{Kind: pki.Host, Name: "a b/c:d%ü"},
		{Kind: pki.Host, Name: "h1", Cell: "cell one/1?#%"},
		{Kind: pki.Service, Name: "compute-api"},
	} {
		got, err := pki.IdentityOf(&x509.Certificate{URIs: id.URIs()})
		if err != nil || got.Kind != id.Kind || got.Name != id.Name ||
			!slices.Equal(got.Nodes, id.Nodes) || got.Cell != id.Cell {
			t.Errorf("%+v became %+v, %v", id, got, err)
		}
	}
}

func TestOwnNames(t *testing.T) {
	id := pki.Identity{Kind: pki.Host, Name: "h1", Names: []string{"h1", "gpu.example"}}
	for name, want := range map[string]bool{
		"h1": true, "h1.example.com": true, "gpu.example": true, "gpu.example.com": false, "gpu": false, "h10": false,
		"h10.example": false, "h": false, "": false,
	} {
		testproc.Equal(t, id.HasName(name), want, "%q: %v", name)
	}
	if !id.HasNode(node) {
		t.Error("a certificate without nodes says nothing about them")
	}
	id.Nodes = []string{node}
	if !id.HasNode(node) || id.HasNode("7f0ba24e-2e4f-4a07-8a4e-0a3a8b1b5d56") {
		t.Error("a certificate with nodes is for those")
	}
}

// TestNamesOverlap: two hosts overlap if one may have a provider with the name of the other.
func TestNamesOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"h1", "h1", true}, {"h1", "H1", true}, {"h1", "h1.example.com", true}, {"H1", "h1.Example.com", true},
		{"h1", "h1_b", true}, {"h1", "h1.example.com_b", true},
		{"h1.example.com", "h1.example.com_b", true}, {"h1_b", "h1_b.example.com", true}, {"h1_b", "h1_b_c", true},
		{"h1", "h10", false}, {"h1", "h1-b", false}, {"h1", "h2.h1", false}, {"h1.a", "h1.b", false},
		{"h1.a", "h1.a.b", false}, {"h1_a", "h1_b", false}, {"h1.a", "h1_b", false},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			testproc.Equal(t, pki.NamesOverlap(pair[0], pair[1]), c.want, "%s and %s: %v", pair[0], pair[1])
		}
	}
}

func TestPeer(t *testing.T) {
	c := certificate(t, "h1", nil)
	state := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}, PeerCertificates: []*x509.Certificate{c}}
	if id, err := pki.Peer(state, time.Unix(1500, 0)); err != nil || id.Name != "h1" {
		t.Errorf("Peer: got %+v, %v, want h1", id, err)
	}
	for _, at := range []int64{999, 2001} {
		testproc.Try(pki.Peer(state, time.Unix(at, 0))).ErrorIs(t, pki.ErrExpired, "at %d: %v", at)
	}
	for _, unverified := range []*tls.ConnectionState{nil, {}, {PeerCertificates: []*x509.Certificate{c}}} {
		testproc.Try(pki.Peer(unverified, time.Unix(1500, 0))).ErrorIs(t, pki.ErrNoCertificate, "%+v: %v", unverified)
	}
}
