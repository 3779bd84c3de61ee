// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestImportedKeys: each type that ssh-keygen makes without a device is taken with its fingerprint,
// and none of whose bytes some are missing, or are too many, or of another type.
func TestImportedKeys(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, kind := range []string{"rsa", "ed25519", "ecdsa 256", "ecdsa 384", "ecdsa 521"} {
		name, bits, sized := strings.Cut(kind, " ")
		file := filepath.Join(t.TempDir(), "key")
		args := []string{"-q", "-t", name, "-N", "", "-C", "me@home", "-f", file}
		if sized {
			args = append(args, "-b", bits)
		}
		testproc.SSHKeygen(t, args...)
		data := testproc.Try(os.ReadFile(file + ".pub")).Or(t)
		key := string(data)
		print, err := keyFingerprint(apidb.KeySSH, key)
		if said := testproc.SSHKeygen(t, "-l", "-E", "md5", "-f", file); err != nil ||
			!strings.Contains(said, "MD5:"+print+" ") {
			t.Errorf("%s: %q, %v, and ssh-keygen's %s", kind, print, err, said)
		}
		fields := strings.Fields(key)
		read := testproc.Try(sshKey(key)).Or(t)
		blob := read.Marshal()
		for what, wrong := range map[string]string{
			"a part":          encoded(fields[0], blob[:len(blob)-1]),
			"more":            encoded(fields[0], append(blob[:len(blob):len(blob)], 0)),
			"another type":    encoded("ssh-dss", blob),
			"an unknown type": encoded("ssh-none", blob), "no base64": fields[0] + " !", "no key": fields[0],
		} {
			if got, err := sshKey(wrong); err == nil {
				t.Errorf("%s: %s is taken as a key of %d bytes", kind, what, len(got.Marshal()))
			}
		}
	}
	if _, err := sshKey("ssh-rsa " + encodedParts("ssh-rsa", "\x01\x00\x01", "\xff")); err == nil {
		t.Error("a negative modulus is taken")
	}
	if _, err := sshKey("ecdsa-sha2-nistp256 " +
		encodedParts("ecdsa-sha2-nistp256", "nistp256", "\x04"+strings.Repeat("\x01", 64))); err == nil {
		t.Error("a point that is not of the curve is taken")
	}
}

// encoded is a key of a type.
func encoded(kind string, blob []byte) string {
	return kind + " " + base64.StdEncoding.EncodeToString(blob)
}

// encodedParts is a blob, in base64.
func encodedParts(parts ...string) string {
	var blob []byte
	for _, part := range parts {
		blob = append(binary.BigEndian.AppendUint32(blob, uint32(len(part))), part...)
	}
	return base64.StdEncoding.EncodeToString(blob)
}

// FuzzSSHKey: whatever a client sends, it is read without harm.
func FuzzSSHKey(f *testing.F) {
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDdYXGbpsTE2fzyfO0JAzbXoEJcLeP3yjG4nCKSAr1uI drivertest")
	f.Add("ssh-rsa " + encodedParts("ssh-rsa", "\x01\x00\x01", "\x00\xff"))
	f.Fuzz(func(t *testing.T, key string) {
		print, err := keyFingerprint(apidb.KeySSH, key)
		if err == nil && !regexp.MustCompile(`^([0-9a-f]{2}:){15}[0-9a-f]{2}$`).MatchString(print) {
			t.Errorf("the fingerprint of %q: got %q", key, print)
		}
	})
}

// TestImportedCertificate: an X.509 certificate is known by the SHA-1 of its bytes.
func TestImportedCertificate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	public, private, err := generateKey(apidb.KeySSH)
	testproc.Check(t, err)
	block, _ := pem.Decode([]byte(private))
	key := testproc.Try(x509.ParsePKCS1PrivateKey(block.Bytes)).Or(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der := testproc.Try(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)).Or(t)
	print, err := keyFingerprint(apidb.KeyX509, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	if err != nil || len(print) != 59 {
		t.Errorf("the fingerprint of a certificate: got %q, %v, want 59 characters", print, err)
	}
	for _, wrong := range []string{public, private,
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der[1:]}))} {
		if _, err := keyFingerprint(apidb.KeyX509, wrong); err == nil {
			t.Errorf("taken as a certificate: %s", wrong)
		}
	}
}
