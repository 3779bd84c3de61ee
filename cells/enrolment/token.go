// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// tokenVersion begins tokens: what they mean may change.
const tokenVersion = "join1"

// Sizes of the parts of a token, in bytes.
const (
	tokenIDSize     = 8
	tokenSecretSize = 32
	tokenSaltSize   = 16
)

// ErrToken says that a text is not a token.
var ErrToken = errors.New("it is not a join token, as `compute-agent cells manage add-host` prints it")

// Token lets a host join. It is a secret.
type Token struct {
	// Fingerprint is the CA's, by which the host verifies the service before it sends the token.
	Fingerprint string
	// ID finds the enrolment; it is not a secret.
	ID     string
	secret string
}

// NewToken makes a token for hosts of the CA with a fingerprint.
func NewToken(fingerprint string) Token {
	return Token{Fingerprint: fingerprint, ID: hex.EncodeToString(random(tokenIDSize)),
		secret: base64.RawURLEncoding.EncodeToString(random(tokenSecretSize))}
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// ParseToken reads a token. Its error does not show it.
func ParseToken(text string) (Token, error) {
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 4 || parts[0] != tokenVersion || !isHex(parts[1], sha256.Size) || !isHex(parts[2], tokenIDSize) {
		return Token{}, ErrToken
	}
	if secret, err := base64.RawURLEncoding.DecodeString(parts[3]); err != nil || len(secret) != tokenSecretSize {
		return Token{}, ErrToken
	}
	return Token{Fingerprint: parts[1], ID: parts[2], secret: parts[3]}, nil
}

func isHex(text string, size int) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == size && strings.ToLower(text) == text
}

// Reveal is the text of the token, for the one who is to have it.
func (t Token) Reveal() string {
	return strings.Join([]string{tokenVersion, t.Fingerprint, t.ID, t.secret}, ".")
}

// String hides the secret.
func (t Token) String() string { return fmt.Sprintf("(join token %s)", t.ID) }

// GoString hides the secret from %#v.
func (t Token) GoString() string { return t.String() }

// digest is what the database keeps of a token.
func (t Token) digest() apidb.TokenDigest {
	salt := hex.EncodeToString(random(tokenSaltSize))
	return apidb.TokenDigest{ID: t.ID, Salt: salt, Digest: t.salted(salt)}
}

// salted is the digest of the token. The secret is random and long: there is nothing to slow down.
func (t Token) salted(salt string) string {
	sum := sha256.Sum256([]byte(salt + t.secret))
	return hex.EncodeToString(sum[:])
}

// matches reports whether a digest is that of the token. It takes the same time whatever differs.
func (t Token) matches(d apidb.TokenDigest) bool {
	return t.ID == d.ID && subtle.ConstantTimeCompare([]byte(t.salted(d.Salt)), []byte(d.Digest)) == 1
}
