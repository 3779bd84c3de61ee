// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/providertree"
)

// IdentityFile is the name of the file that holds the uuid of the host's compute node: Nova's name and format, one uuid
// and a newline.
const IdentityFile = "compute_id"

// LoadIdentity reads the host's identity, and makes one at the first start.
//
// It looks for [IdentityFile] in each directory of search and in stateDir. All files that are found must agree: a copied
// disk or a half-restored backup must not write to another node's providers. If there is none, a new uuid is written to
// stateDir, whole and synced or not at all, and created reports it. A file that cannot be read, or holds no uuid, is an
// error that names it: it is never replaced.
//
// Two processes that start at the same time end up with the same identity.
func LoadIdentity(stateDir string, search ...string) (id string, created bool, err error) {
	id, err = FindIdentity(stateDir, search...)
	if err != nil || id != "" {
		return id, false, err
	}
	id = uuid.NewString()
	path := filepath.Join(stateDir, IdentityFile)
	switch err := writeIdentity(path, id); {
	case errors.Is(err, fs.ErrExist): // somebody else was faster
		id, err = readIdentity(path)
		return id, false, err
	case err != nil:
		return "", false, fmt.Errorf("cannot keep this host's new identity: %w", err)
	}
	return id, true, nil
}

// FindIdentity is [LoadIdentity] without making one: "" if there is none yet.
func FindIdentity(stateDir string, search ...string) (id string, err error) {
	var from string
	for _, dir := range append(search, stateDir) {
		path := filepath.Join(dir, IdentityFile)
		found, err := readIdentity(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		case id != "" && id != found:
			return "", fmt.Errorf("this host has two identities: %s says %s and %s says %s; remove the wrong one (the right one is the uuid of "+
				"this host's resource provider in Placement)", from, id, path, found)
		}
		id, from = found, path
	}
	return id, nil
}

func readIdentity(path string) (string, error) {
	const most = 256
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, most)
	n, err := f.Read(buf)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("%s: cannot read the identity: %w", path, err)
	}
	id, err := providertree.CanonicalUUID(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return "", fmt.Errorf("%s: the file must hold one uuid and nothing else: %w", path, err)
	}
	return id, nil
}

// writeIdentity creates the file with its content in one step: written beside, synced, and linked into place, which fails
// if it exists.
func writeIdentity(path, id string) error {
	tmp := path + ".new-" + rand.Text()
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp) }()
	_, err = f.WriteString(id + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
