// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// JoinedFile is the file of the configuration that joining writes, below the directory of the main
// file.
const JoinedFile = "conf.d/50-joined.toml"

// ErrJoined says that a host has an identity already.
var ErrJoined = errors.New("this host has joined already")

// Host is the files of a host that joins.
type Host struct {
	// StateDir is the state directory of its agent, ConfigDir that of the agent's configuration.
	StateDir, ConfigDir string
	// UID and GID are those of the agent, which the files in the state directory will belong to.
	UID, GID int
}

// path returns the path of a file in the state directory.
func (h Host) path(name string) string { return filepath.Join(h.StateDir, name) }

// IdentityPath is where the key and the certificate of the host are.
func (h Host) IdentityPath() string { return h.path(IdentityFile) }

// Begin makes the state directory and the key, or finds the key of a join that was not finished:
// the service answers the same key again. ErrJoined if the host has an identity, unless again is
// set.
func (h Host) Begin(again bool) (crypto.Signer, error) {
	pending, err := h.readSecret(PendingKeyFile)
	if err == nil {
		pair, err := parseKey(pending)
		if err != nil {
			return nil, fmt.Errorf("%s: %w; remove it to make another key", h.path(PendingKeyFile), err)
		}
		return pair, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; remove it to make another key", err)
	}
	id, err := h.identity()
	switch {
	case again || errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%w: %s cannot be read: %w", ErrJoined, h.IdentityPath(), err)
	default:
		return nil, fmt.Errorf("%w, as %s, with a certificate until %s (%s)",
			ErrJoined, id.Name, id.Expires.UTC().Format(time.RFC3339), h.IdentityPath())
	}
	if err := h.makeDir(); err != nil {
		return nil, err
	}
	key, text, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	return key, h.write(h.path(PendingKeyFile), text, 0o600)
}

// Request makes a request for a certificate of the host with a name, for the key of [Host.Begin].
func (h Host) Request(name string, again bool) ([]byte, error) {
	key, err := h.Begin(again)
	if errors.Is(err, ErrJoined) {
		err = fmt.Errorf("%w; with --again it gets another identity, and this one is replaced", err)
	}
	if err != nil {
		return nil, err
	}
	return pki.NewRequest(key, name)
}

// identity is whom the identity file is for.
func (h Host) identity() (HostIdentity, error) {
	content, err := h.readSecret(IdentityFile)
	if err != nil {
		return HostIdentity{}, err
	}
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return HostIdentity{}, err
	}
	return identityOf(pair.Leaf)
}

// readSecret reads a secret of the agent: the key of a join that was not finished, or the identity.
// Root does so in a directory of the agent, who must not have it take another file, such as root's
// own key, for the host's.
func (h Host) readSecret(name string) ([]byte, error) {
	content, err := files.ReadOwn(h.path(name), h.UID)
	return content.Data, err
}

// Abandon forgets the key of a join that was refused.
func (h Host) Abandon() error {
	err := os.Remove(h.path(PendingKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// makeDir makes the state directory, if it is missing, for the agent.
func (h Host) makeDir() error {
	_, err := os.Stat(h.StateDir)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(h.StateDir), 0o755); err != nil { // it is not the state directory
		return err
	}
	if err := os.Mkdir(h.StateDir, 0o700); err != nil {
		return err
	}
	return os.Lchown(h.StateDir, h.UID, h.GID)
}

func (h Host) write(path string, content []byte, mode os.FileMode) error {
	return files.ReplaceFor(path, content, mode, h.UID, h.GID)
}

// Joined is what a host got.
type Joined struct {
	Host string
	// Certificates are the host's and those between it and its CA, CA what the host trusts, in PEM.
	Certificates, CA []byte
	// Cell, Placement and Enrolment are addresses; "": not known, and not configured here.
	Cell, Placement, Enrolment string
	// PlacementCA is what the host trusts at Placement, in PEM; nil: CA.
	PlacementCA []byte
}

// FromAnswer is what an answer of a service at a URL says.
func FromAnswer(a *Answer, url string) Joined {
	j := Joined{
		Host: a.Host, Certificates: []byte(a.Certificate), CA: []byte(a.CA), Cell: strings.Join(a.Cell.URLs, ","),
		Placement: a.Placement.URL, Enrolment: url,
	}
	if a.Placement.CA != "" {
		j.PlacementCA = []byte(a.Placement.CA)
	}
	return j
}

// Setting is a key of the configuration and its value.
type Setting struct{ Key, Value string }

// Settings returns the settings of a host that has joined.
func (h Host) Settings(j Joined) []Setting {
	out := []Setting{{"agent.host", j.Host}}
	client := func(section, url, ca string) {
		out = append(out, Setting{section + ".url", url}, Setting{section + ".ca_file", h.path(ca)})
	}
	pair := func(section string) {
		out = append(out, Setting{section + ".cert_file", h.IdentityPath()},
			Setting{section + ".key_file", h.IdentityPath()})
	}
	if j.Cell != "" {
		client("cell_client", j.Cell, CAFile)
		pair("cell_client")
	}
	if j.Placement != "" {
		ca := CAFile
		if j.PlacementCA != nil {
			ca = PlacementCAFile
		}
		client("placement_client", j.Placement, ca)
		pair("placement_client")
		out = append(out, Setting{"placement_client.auth", "certificate"})
	}
	if j.Enrolment != "" {
		client("enrolment_client", j.Enrolment, CAFile)
		out = append(out, Setting{"enrolment_client.identity_file", h.IdentityPath()})
	}
	return out
}

// configuration is the text of the settings.
func configuration(settings []Setting, host string, now time.Time) ([]byte, error) {
	text := fmt.Appendf(nil, "# Written by `compute-agent join` for host %s at %s, which replaces this file.\n", host,
		now.UTC().Format(time.RFC3339))
	section := ""
	for _, s := range settings {
		in, name, _ := strings.Cut(s.Key, ".")
		if in != section {
			text = fmt.Appendf(text, "\n[%s]\n", in)
			section = in
		}
		value, err := json.Marshal(s.Value) // TOML's strings are written alike
		if err != nil {
			return nil, err
		}
		text = fmt.Appendf(text, "%s = %s\n", name, value)
	}
	return text, nil
}

// Finish writes what a host got: the CAs, then key and certificate in one file, then the
// configuration. Each file is the old one or the new one; until all are there, the key is pending
// and the join can be repeated. It reports each file that it wrote.
func (h Host) Finish(j Joined, now time.Time, wrote func(path string)) error {
	pending, err := h.readSecret(PendingKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; `compute-agent join --csr FILE` makes a key", err)
	}
	if err != nil {
		return err
	}
	identity, id, err := NewIdentity(pending, j.Certificates, now)
	if err != nil {
		return err
	}
	if id.Kind == pki.Service || !id.HasName(j.Host) {
		return fmt.Errorf("the certificate is for %q, not for host %q", id.Names, j.Host)
	}
	for _, ca := range [][]byte{j.CA, j.PlacementCA} {
		if ca == nil {
			continue
		}
		if _, err := parseCertificates(ca); err != nil {
			return fmt.Errorf("the certificates of the CA: %w", err)
		}
	}
	text, err := configuration(h.Settings(j), j.Host, now)
	if err != nil {
		return err
	}
	config := filepath.Join(h.ConfigDir, JoinedFile)
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil { // the configuration is no secret
		return err
	}
	for _, f := range []struct {
		path    string
		content []byte
		mode    os.FileMode
	}{
		{h.path(CAFile), j.CA, 0o644}, {h.path(PlacementCAFile), j.PlacementCA, 0o644},
		{h.IdentityPath(), identity, 0o600},
	} {
		if f.content == nil {
			continue
		}
		if err := h.write(f.path, f.content, f.mode); err != nil {
			return err
		}
		wrote(f.path)
	}
	if err := files.ReplaceMode(config, text, 0o644); err != nil {
		return err
	}
	wrote(config)
	return h.Abandon()
}

// AgentOwner is whom the files of an agent belong to: the owner of its state directory, if there is
// one, else a user. Processes of other users than root have no choice.
func AgentOwner(stateDir, fallback string) (uid, gid int, err error) {
	if os.Geteuid() != 0 {
		return os.Geteuid(), os.Getegid(), nil
	}
	info, err := os.Stat(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return userID(fallback)
	}
	if err != nil {
		return 0, 0, err
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("the owner of %s is not known", stateDir)
	}
	return int(sys.Uid), int(sys.Gid), nil
}

// userID looks up a user.
func userID(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, fmt.Errorf("%w; --user names another one", err)
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

// parseKey reads a key in PEM.
func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is not a key in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	return signer, nil
}
