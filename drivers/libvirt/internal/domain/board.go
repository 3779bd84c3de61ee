// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"fmt"

	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
)

// Board is what a guest keeps that is in no disk of its own.
type Board struct {
	// Machine is the machine type with its version, as libvirt found it: pc-q35-9.2.
	Machine string
	// NVRAM is the path of the file with the variables of the guest's firmware, or "".
	NVRAM string
	// TPM says that it has a TPM whose state libvirt keeps.
	TPM bool
}

// ReadBoard reads it from the XML of a domain.
func ReadBoard(text []byte) (Board, error) {
	var x libvirtxml.Domain
	if err := capabilities.Decode(string(text), &x); err != nil {
		return Board{}, fmt.Errorf("the XML of a domain: %w", err)
	}
	var out Board
	if x.OS != nil && x.OS.Type != nil && word.MatchString(x.OS.Type.Machine) {
		out.Machine = x.OS.Type.Machine
	}
	if x.OS != nil && x.OS.NVRam != nil {
		out.NVRAM = x.OS.NVRam.NVRam
		if s := x.OS.NVRam.Source; out.NVRAM == "" && s != nil && s.File != nil {
			out.NVRAM = s.File.File
		}
	}
	if x.Devices != nil {
		for _, tpm := range x.Devices.TPMs {
			out.TPM = out.TPM || tpm.Backend != nil && tpm.Backend.Emulator != nil
		}
	}
	return out, nil
}

// IsMachine reports whether a word can be a machine type.
func IsMachine(text string) bool { return word.MatchString(text) }
