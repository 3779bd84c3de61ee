// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestBoardsAreRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for text, want := range map[string]Board{
		`<domain/>`: {},
		`<domain><os><type machine='pc-q35-9.2'>hvm</type><nvram>/var/lib/libvirt/qemu/nvram/a_VARS.fd</nvram></` +
			`os></domain>`: {
			Machine: "pc-q35-9.2", NVRAM: "/var/lib/libvirt/qemu/nvram/a_VARS.fd",
		},
		`<domain><os><type machine='../q35'>hvm</type><nvram type='file'><source file='/a'/></nvram></os></domain>`: {
			NVRAM: "/a",
		},
		`<domain><devices><tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm></devices></domain>`: {
			TPM: true,
		},
		`<domain><devices><tpm model='tpm-tis'><backend type='passthrough'><device ` +
			`path='/dev/tpm0'/></backend></tpm></devices></domain>`: {},
	} {
		got, err := ReadBoard([]byte(text))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	if _, err := ReadBoard([]byte("<domain")); err == nil {
		t.Error("half a domain was read")
	}
}
