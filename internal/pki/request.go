// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/compute-agent/compute-agent/internal/files"
)

const (
	// maxRequest is the size of a request in PEM, in bytes; one with the largest key has 3 KiB.
	maxRequest = 16 << 10
	// minRSA and maxRSA bound the keys of RSA, in bits.
	minRSA, maxRSA = 2048, 8192
)

// NewKey makes a key, and its PEM (PKCS #8). It is ECDSA with P-256, which every library knows.
func NewKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// ParseKey reads a key as NewKey makes it.
func ParseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%w: it is not a PRIVATE KEY in PEM", ErrInvalid)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: the key: %w", ErrInvalid, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: the key of type %T does not sign", ErrInvalid, key)
	}
	return signer, checkKey(signer.Public())
}

// FileKey is the key of a file, or a new one, which it writes (mode 0600). A key that other users
// may read is refused.
func FileKey(path string) (crypto.Signer, error) {
	has, err := files.Read(path)
	if err == nil {
		if err := has.Private(); err != nil {
			return nil, fmt.Errorf("the key %w", err)
		}
		key, err := ParseKey(has.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; remove it to get a new one", path, err)
		}
		return key, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	key, text, err := NewKey()
	if err != nil {
		return nil, err
	}
	return key, files.Create(path, text, 0o600)
}

// NewRequest makes a request for a certificate (PKCS #10), in PEM. The name is for people that sign
// it; see [Authority.Sign].
func NewRequest(key crypto.Signer, name string) ([]byte, error) {
	template := &x509.CertificateRequest{}
	if len(name) <= maxCommonName {
		template.Subject = pkix.Name{CommonName: name}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("make the request for a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// ParseRequest reads a request as NewRequest makes it. Its signature proves that the sender has the
// key; nothing else in it is trustworthy. It returns ErrInvalid for anything else, and for a weak
// key.
func ParseRequest(text []byte) (*x509.CertificateRequest, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("%w: the request has %d bytes, more than %d", ErrInvalid, len(text), maxRequest)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST" {
		return nil, fmt.Errorf("%w: the request is not a CERTIFICATE REQUEST in PEM", ErrInvalid)
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%w: the request is followed by something else", ErrInvalid)
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: the request: %w", ErrInvalid, err)
	}
	// The size of the key comes first: it bounds the cost of the signature.
	if err := checkKey(request.PublicKey); err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: the signature of the request: %w", ErrInvalid, err)
	}
	return request, nil
}

// checkKey returns ErrInvalid for keys that not every server takes, or that are weak.
func checkKey(key crypto.PublicKey) error {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() || key.Curve == elliptic.P384() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minRSA && bits <= maxRSA {
			return nil
		}
		return fmt.Errorf("%w: a key of RSA with %d bits; it has %d to %d", ErrInvalid, key.N.BitLen(), minRSA, maxRSA)
	}
	return fmt.Errorf("%w: a key of type %T that is not taken; make one of ECDSA (P-256, P-384), Ed25519 or RSA",
		ErrInvalid, key)
}
