// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/files"
)

// MachineFile is where systems keep machine id: see machine-id(5).
const MachineFile = "/etc/machine-id"

// application is the id of this application for hashes of the machine's id, made once with
// `systemd-id128 new`.
var application = uuid.MustParse("5b0c1f0e-8a2d-4d39-9d6b-f1f2a6c0b7e4")

// Machine returns a hash of the id of the machine in a file, made for this application as
// sd_id128_get_machine_app_specific(3) makes it; "" if the machine has none: there is no such file,
// or it is empty or says "uninitialized".
func Machine(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("machine id: %w", files.Denied(err))
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return "", fmt.Errorf("machine id: %s: %w", path, err)
	}
	content = bytes.TrimSpace(content)
	if len(content) == 0 || string(content) == "uninitialized" {
		return "", nil
	}
	id, err := hex.DecodeString(string(content))
	if err != nil || len(id) != len(uuid.UUID{}) {
		return "", fmt.Errorf("machine id: %s must hold 32 hexadecimal digits (systemd-machine-id-setup makes them)",
			path)
	}
	mac := hmac.New(sha256.New, id)
	_, _ = mac.Write(application[:]) // a hash takes everything
	sum := uuid.UUID(mac.Sum(nil)[:len(uuid.UUID{})])
	sum[6] = sum[6]&0x0f | 0x40 // a version 4 uuid, as systemd has it
	sum[8] = sum[8]&0x3f | 0x80
	return hex.EncodeToString(sum[:]), nil
}
