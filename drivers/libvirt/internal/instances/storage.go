// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/plugins"
)

// A directory of an instance may be on storage that several hosts share. Then its files belong to
// each node that has a claim in it, and go with the last claim.
const (
	claimPrefix = "claim."
	probePrefix = "probe."
	probeLength = 32 // hexadecimal digits
)

var probeName = regexp.MustCompile(`^[0-9a-f]{32}$`)

// claimOf is the file of a node's claim. Nodes are called by anything.
func (d directory) claimOf(node string) string {
	sum := sha256.Sum256([]byte(node))
	return d.file(claimPrefix + hex.EncodeToString(sum[:16]))
}

// claim says that a node uses the files. The directory exists.
func (d directory) claim(node string) error {
	if d.claimedBy(node) {
		return nil
	}
	if err := os.WriteFile(d.claimOf(node), []byte(node+"\n"), 0o600); err != nil {
		return fmt.Errorf("claiming the directory of an instance: %w", err)
	}
	return nil
}

// claimedBy reports whether a node has a claim.
func (d directory) claimedBy(node string) bool {
	_, err := os.Lstat(d.claimOf(node))
	return err == nil
}

// claimed reports whether any node has a claim.
func (d directory) claimed() (bool, error) {
	entries, err := os.ReadDir(filepath.Join(d.path, d.name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading the directory of an instance: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), claimPrefix) {
			return true, nil
		}
	}
	return false, nil
}

// release takes the claim of a node back, and removes the directory if that was the last one. A
// directory that a node uses without a claim, because its guests are older than claims, is its own.
func (d directory) release(node string, used bool) error {
	if !d.exists() {
		return nil
	}
	d.refresh()
	used = used || d.claimedBy(node)
	if err := os.Remove(d.claimOf(node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("leaving the directory of an instance: %w", err)
	}
	others, err := d.claimed()
	if err != nil || others || !used {
		return err
	}
	return d.remove()
}

// renameClaim makes the claim that a node has by a former name one by its present name. Another
// host may get the former one, and would then take the files for its own.
func (s *setup) renameClaim(ctx context.Context, node, uuid string) {
	var former []string
	for name, now := range s.Former {
		if now == node {
			former = append(former, name)
		}
	}
	if len(former) == 0 {
		return
	}
	path, err := s.Directory(ctx)
	if err == nil {
		d := directory{path: path, name: domain.Name(uuid)}
		for _, name := range former {
			// Beside a claim of this node, one by the former name is of the host that has it now.
			if d.claimedBy(name) && !d.claimedBy(node) {
				err = errors.Join(err, os.Rename(d.claimOf(name), d.claimOf(node)))
			}
		}
	}
	if err != nil {
		log := plugins.Logger(ctx)
		log.Warn().Err(err).Str("instance", uuid).Strs("former", former).
			Msg("Could not claim the disks of an instance by the name that its node has now. It is tried again with " +
				"the next change of the instance.")
	}
}

// probe is a random word that is the name of a file in the directory: a host that finds it there
// shares the directory.
func (d directory) probe() (string, error) {
	entries, err := os.ReadDir(filepath.Join(d.path, d.name))
	if err != nil {
		return "", fmt.Errorf("reading the directory of an instance: %w", err)
	}
	for _, e := range entries {
		if word, is := strings.CutPrefix(e.Name(), probePrefix); is && probeName.MatchString(word) {
			return word, nil
		}
	}
	random := make([]byte, probeLength/2)
	_, _ = rand.Read(random) // it never fails
	word := hex.EncodeToString(random)
	if err := os.WriteFile(d.file(probePrefix+word), nil, 0o600); err != nil {
		return "", fmt.Errorf("marking the directory of an instance: %w", err)
	}
	return word, nil
}

// hasProbe reports whether the directory has the probe.
func (d directory) hasProbe(word string) bool {
	if !probeName.MatchString(word) {
		return false
	}
	d.refresh()
	_, err := os.Lstat(d.file(probePrefix + word))
	return err == nil
}

// refresh has a client of NFS ask its server what is in the directory, as Nova does.
func (d directory) refresh() {
	now := time.Now()
	for _, dir := range []string{d.path, filepath.Join(d.path, d.name)} {
		_ = os.Chtimes(dir, now, now) // it may be missing, or another user's: then the kernel decides
	}
}
