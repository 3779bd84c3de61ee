// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/dsa" //nolint:staticcheck // clients have such keys
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" // fingerprints are what Nova's clients know
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// keyFingerprint checks a public key and gives its fingerprint: MD5 of an SSH key, SHA-1 of a
// certificate, as Nova has them. The error is for the client.
func keyFingerprint(kind, key string) (string, error) {
	if err := checkPublicKey(key); err != nil {
		return "", err
	}
	if kind == apidb.KeyX509 {
		block, _ := pem.Decode([]byte(key))
		if block == nil || block.Type != "CERTIFICATE" {
			return "", errors.New("failed to generate X509 fingerprint. Error message: it is no certificate in PEM")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "", fmt.Errorf("failed to generate X509 fingerprint. Error message: %w", err)
		}
		sum := sha1.Sum(block.Bytes)
		return strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":"), nil // 0a:1b:…
	}
	public, err := sshKey(key)
	if err != nil {
		return "", errors.New("failed to generate fingerprint")
	}
	return ssh.FingerprintLegacyMD5(public), nil
}

// errNoKey says that a text is no public key of SSH's.
var errNoKey = errors.New("no public key of a known type")

// sshKeys are the types of public keys that are taken; certificates are not among them.
var sshKeys = []string{
	ssh.InsecureKeyAlgoDSA, //nolint:staticcheck // clients have such keys
	ssh.KeyAlgoRSA, ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
	ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
}

// sshKey reads a public key in the form of authorized_keys without options: a type, base64, a
// comment.
func sshKey(line string) (ssh.PublicKey, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 || !slices.Contains(sshKeys, fields[0]) {
		return nil, errNoKey
	}
	data, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return nil, errNoKey
	}
	key, err := ssh.ParsePublicKey(data)
	if err != nil || key.Type() != fields[0] ||
		slices.ContainsFunc(numbersOf(key), func(n *big.Int) bool { return n.Sign() <= 0 }) {
		return nil, errNoKey
	}
	return key, nil
}

// numbersOf are the numbers of an RSA or DSA key, whose signs package ssh does not look at.
func numbersOf(key ssh.PublicKey) []*big.Int {
	if holds, is := key.(ssh.CryptoPublicKey); is {
		switch k := holds.CryptoPublicKey().(type) {
		case *rsa.PublicKey:
			return []*big.Int{k.N}
		case *dsa.PublicKey:
			return []*big.Int{k.P, k.Q, k.G, k.Y}
		}
	}
	return nil
}

// keyBits is the size of the keys that are made.
const keyBits = 2048

// generateKey makes a key pair: what goes into authorized_keys, and the private key in PEM. Cost:
// about 0.1 s of CPU.
func generateKey(kind string) (public, private string, err error) {
	if kind != apidb.KeySSH {
		return "", "", osapi.BadRequest("type: this service makes no X.509 certificates; send one as public_key.")
	}
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return "", "", fmt.Errorf("making an RSA key: %w", err)
	}
	made, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return "", "", fmt.Errorf("writing an RSA key: %w", err)
	}
	public = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(made))) + " Generated-by-Nova"
	return public, string(
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})), nil
}
