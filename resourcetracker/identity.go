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
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/providertree"
)

// IdentityFile is the name of the file that holds the uuid of the host's compute node: Nova's name
// and format, one uuid and a newline.
const IdentityFile = "compute_id"

// LoadIdentity reads the host's identity, and makes one at the first start.
//
// It looks for [IdentityFile] in each directory of search and in stateDir. All files that are found
// must agree: a copied disk or a half-restored backup must not write to another node's providers.
// If there is none, a new uuid is written to stateDir, whole and synced or not at all, and created
// reports it. A file that cannot be read, or holds no uuid, is an error that names it: it is never
// replaced.
//
// Two processes that start at the same time end up with the same identity.
func LoadIdentity(stateDir string, search ...string) (id string, created bool, err error) {
	id, err = FindIdentity(stateDir, search...)
	if err != nil || id != "" {
		return id, false, err
	}
	id = uuid.NewString()
	path := filepath.Join(stateDir, IdentityFile)
	switch err := writeIdentity(path, id, os.Link); {
	case errors.Is(err, fs.ErrExist): // another process was faster
		id, err = readIdentity(path)
		return id, false, err
	case err != nil:
		return "", false, fmt.Errorf("cannot write this host's new identity: %w", err)
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
			return "", fmt.Errorf(
				"this host has two identities: %s says %s and %s says %s; remove the wrong one (the right one is the "+
					"uuid of this host's resource provider in Placement)", from, id, path, found)
		}
		id, from = found, path
	}
	return id, nil
}

func readIdentity(path string) (string, error) {
	const maxBytes = 256
	f, err := os.Open(path)
	if err != nil {
		return "", files.Denied(err)
	}
	defer func() { _ = f.Close() }()
	buf := make([]byte, maxBytes)
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

// ReplaceIdentity makes id the host's identity in every directory of search and stateDir that has a
// file with another, and in stateDir if there is none at all. What a file held before stays beside
// it, as compute_id.replaced-TIME.
//
// Each file is replaced whole or not at all. After a crash between two of them they disagree, which
// [LoadIdentity] refuses; the same call again finishes it.
func ReplaceIdentity(id string, now time.Time, stateDir string, search ...string) error {
	anywhere := false
	for _, dir := range append(slices.Clone(search), stateDir) {
		path := filepath.Join(dir, IdentityFile)
		found, err := readIdentity(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		anywhere = true
		if err == nil && found == id {
			continue
		}
		// A link, so that there is no moment without the file.
		kept := path + ".replaced-" + now.UTC().Format("20060102T150405.000Z")
		if err := os.Link(path, kept); err != nil {
			return fmt.Errorf("cannot keep the previous identity: %w", err)
		}
		if err := writeIdentity(path, id, os.Rename); err != nil {
			return fmt.Errorf("cannot write this host's identity: %w", err)
		}
	}
	if anywhere {
		return nil
	}
	if err := writeIdentity(filepath.Join(stateDir, IdentityFile), id, os.Link); err != nil {
		return fmt.Errorf("cannot write this host's identity: %w", err)
	}
	return nil
}

// writeIdentity writes the file beside its place and moves it there by os.Link, which fails if it
// exists, or os.Rename, which replaces it. Programs of other users may read it.
func writeIdentity(path, id string, place func(from, to string) error) error {
	tmp := path + ".new-" + rand.Text()
	defer func() { _ = os.Remove(tmp) }() // a rename has moved it
	if err := (files.OS{}).WriteFile(tmp, []byte(id+"\n")); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o644); err != nil {
		return err
	}
	if err := place(tmp, path); err != nil {
		return err
	}
	return files.OS{}.SyncDir(filepath.Dir(path))
}
