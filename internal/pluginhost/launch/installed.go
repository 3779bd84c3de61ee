// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Prefix begins the file name of every plugin: that of the driver "libvirt" is
// compute-driver-libvirt.
const Prefix = "compute-driver-"

// SuiteName is what no driver is called: compute-driver-test is the conformance suite.
const SuiteName = "test"

// Installed returns the paths of the executables in plugin directories that are named like plugins,
// by driver name. The first directory that has a driver wins; one that does not exist has none. An
// installed driver is started only if it is configured.
func Installed(dirs ...string) (map[string]string, error) {
	out := map[string]string{}
	for _, dir := range slices.Backward(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing installed plugins: %w", err)
		}
		for _, e := range entries {
			if name, ok := strings.CutPrefix(e.Name(), Prefix); ok && protocol.IsDriverName(name) &&
				name != SuiteName && !e.IsDir() {
				out[name] = filepath.Join(dir, e.Name())
			}
		}
	}
	return out, nil
}

// Digest returns the sha256 of a file in hexadecimal, as sha256sum prints it. It reads until ctx
// ends.
func Digest(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if _, err := io.CopyN(hash, f, 4<<20); errors.Is(err, io.EOF) {
			return hex.EncodeToString(hash.Sum(nil)), nil
		} else if err != nil {
			return "", err
		}
	}
}
