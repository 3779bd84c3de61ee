// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"bytes"
	"crypto/ecdh"
	"crypto/md5" //nolint:gosec // fingerprints are what Nova's clients know
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // as above
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
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
		sum := sha1.Sum(block.Bytes) //nolint:gosec // see the import
		return colons(sum[:]), nil
	}
	data, err := sshKey(key)
	if err != nil {
		return "", errors.New("failed to generate fingerprint")
	}
	sum := md5.Sum(data) //nolint:gosec // see the import
	return colons(sum[:]), nil
}

// colons writes bytes as 0a:1b:….
func colons(sum []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":")
}

// errNoKey says that a text is no public key of SSH's.
var errNoKey = errors.New("no public key of a known type")

// sshKeys check what follows the name of a type in the blob of a public key (RFC 4253, 5656, 8709,
// and OpenSSH's PROTOCOL.u2f).
var sshKeys = map[string]func(r *sshReader){
	"ssh-rsa":             func(r *sshReader) { r.integer(); r.integer() },
	"ssh-dss":             func(r *sshReader) { r.integer(); r.integer(); r.integer(); r.integer() },
	"ssh-ed25519":         func(r *sshReader) { r.ed25519() },
	"ecdsa-sha2-nistp256": func(r *sshReader) { r.point("nistp256", ecdh.P256()) },
	"ecdsa-sha2-nistp384": func(r *sshReader) { r.point("nistp384", ecdh.P384()) },
	"ecdsa-sha2-nistp521": func(r *sshReader) { r.point("nistp521", ecdh.P521()) },
	"sk-ssh-ed25519@openssh.com": func(r *sshReader) {
		r.ed25519()
		r.text()
	},
	"sk-ecdsa-sha2-nistp256@openssh.com": func(r *sshReader) {
		r.point("nistp256", ecdh.P256())
		r.text()
	},
}

// sshKey is the blob of a public key in the form of authorized_keys: a type, base64, a comment.
func sshKey(line string) ([]byte, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return nil, errNoKey
	}
	data, err := base64.StdEncoding.DecodeString(fields[1])
	check, known := sshKeys[fields[0]]
	if err != nil || !known {
		return nil, errNoKey
	}
	r := &sshReader{rest: data}
	if string(r.text()) != fields[0] {
		return nil, errNoKey
	}
	check(r)
	if r.wrong || len(r.rest) > 0 {
		return nil, errNoKey
	}
	return data, nil
}

// sshReader reads the parts of a blob, each with its length before it.
type sshReader struct {
	rest  []byte
	wrong bool
}

func (r *sshReader) text() []byte {
	if len(r.rest) < 4 || uint64(binary.BigEndian.Uint32(r.rest)) > uint64(len(r.rest)-4) {
		r.wrong, r.rest = true, nil
		return nil
	}
	n := 4 + int(binary.BigEndian.Uint32(r.rest))
	text := r.rest[4:n]
	r.rest = r.rest[n:]
	return text
}

// integer reads one that is positive.
func (r *sshReader) integer() {
	n := r.text()
	r.wrong = r.wrong || len(n) == 0 || n[0]&0x80 != 0 || new(big.Int).SetBytes(n).Sign() == 0
}

func (r *sshReader) ed25519() { r.wrong = len(r.text()) != 32 || r.wrong }

// point reads one of a curve.
func (r *sshReader) point(name string, of ecdh.Curve) {
	named := string(r.text()) == name
	_, err := of.NewPublicKey(r.text())
	r.wrong = r.wrong || !named || err != nil
}

// keyBits is the size of the keys that are made.
const keyBits = 2048

// generateKey makes a key pair: what goes into authorized_keys, and the private key in PEM. Cost:
// about 0.1 s of CPU.
func generateKey(kind string) (public, private string, err error) {
	if kind != apidb.KeySSH {
		return "", "", badRequest("type: this service makes no X.509 certificates; send one as public_key.")
	}
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return "", "", fmt.Errorf("making an RSA key: %w", err)
	}
	var blob bytes.Buffer
	// A positive integer whose highest bit is set has a zero before it: that of N is, that of E,
	// 65537, is not.
	for _, part := range [][]byte{[]byte("ssh-rsa"), big.NewInt(int64(key.E)).Bytes(), append([]byte{0}, key.N.Bytes()...)} {
		_ = binary.Write(&blob, binary.BigEndian, uint32(len(part))) //nolint:gosec // a few hundred
		blob.Write(part)
	}
	public = "ssh-rsa " + base64.StdEncoding.EncodeToString(blob.Bytes()) + " Generated-by-Nova"
	return public, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})), nil
}
