// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"

	"github.com/compute-agent/compute-agent/plugins"
)

// [SeedDisk] writes the disk from which cloud-init learns what its owner wants of a guest: the
// datasource NoCloud, a FAT file system with the label CIDATA and the files meta-data and
// user-data.

// MaxUserData is how much user data there can be, in bytes.
const MaxUserData = 64 << 10

// FAT12 with clusters of one sector. 1 MiB holds far more than there can be.
const (
	sector      = 512
	sectors     = 2048
	fatSectors  = 6 // 12 bits for each cluster
	rootEntries = 64
	entrySize   = 32
	rootAt      = (1 + 2*fatSectors) * sector
	dataAt      = rootAt + rootEntries*entrySize
	media       = 0xf8

	label = "CIDATA     "

	attrReadOnly = 0x01
	attrLabel    = 0x08
	attrLongName = 0x0f
	lastOfName   = 0x40
	endOfChain   = 0xfff
	// day is 2000-01-01: equal instances have equal disks.
	day = 20<<9 | 1<<5 | 1
)

// seedFile is a file in the root directory. short is its name for systems without long names.
type seedFile struct {
	name, short string
	text        []byte
}

// seeded reports whether an instance has something to learn.
func seeded(spec plugins.InstanceSpec) bool { return len(spec.UserData) > 0 || spec.PublicKey != "" }

// SeedDisk is the content of the disk for an instance: its uuid, the name that its owner gave it,
// the public key of its key pair, and the user data.
func SeedDisk(spec plugins.InstanceSpec) ([]byte, error) {
	if len(spec.UserData) > MaxUserData {
		return nil, fmt.Errorf("the user data has %d bytes, more than %d", len(spec.UserData), MaxUserData)
	}
	meta := map[string]any{"instance-id": spec.UUID, "local-hostname": hostname(spec.Name, spec.UUID)}
	if spec.PublicKey != "" {
		meta["public-keys"] = map[string][]string{spec.KeyName: keyLines(spec.PublicKey)}
	}
	text, err := json.Marshal(meta) // JSON is YAML
	if err != nil {
		return nil, err
	}
	return filesystem(spec.UUID, []seedFile{{"meta-data", "META-D~1   ", append(text, '\n')}, {"user-data", "USER-D~1   ", spec.UserData}})
}

// keyLines are the lines of authorized_keys: cloud-init reads each as a key. A certificate stays
// whole.
func keyLines(key string) []string {
	if strings.HasPrefix(strings.TrimSpace(key), "-----BEGIN ") {
		return []string{key}
	}
	var out []string
	for line := range strings.Lines(key) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// hostname makes a name that a host can have of one that people chose, as Nova does.
func hostname(name, uuid string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '.':
			out.WriteRune(r)
		case r == ' ', r == '_':
			out.WriteByte('-')
		}
		if out.Len() == 63 {
			break
		}
	}
	if trimmed := strings.Trim(out.String(), ".-"); trimmed != "" {
		return trimmed
	}
	return "server-" + uuid
}

// filesystem is all of a disk.
func filesystem(serial string, files []seedFile) ([]byte, error) {
	disk := make([]byte, sectors*sector)
	boot(disk, serial)
	fat := make([]byte, fatSectors*sector)
	link(fat, 0, 0xf00|media)
	link(fat, 1, endOfChain)
	root := fatEntry(label, attrLabel, 0, 0)
	next := 2
	for _, f := range files {
		clusters := (len(f.text) + sector - 1) / sector
		at := dataAt + (next-2)*sector
		if at+clusters*sector > len(disk) || len(utf16.Encode([]rune(f.name))) > 13 {
			return nil, errors.New("the files do not fit on the disk")
		}
		copy(disk[at:], f.text)
		for i := range clusters {
			if i == clusters-1 {
				link(fat, next+i, endOfChain)
			} else {
				link(fat, next+i, next+i+1)
			}
		}
		first := 0 // an empty file has none
		if clusters > 0 {
			first = next
		}
		root = append(root, longName(f.name, f.short)...)
		root = append(root, fatEntry(f.short, attrReadOnly, first, len(f.text))...)
		next += clusters
	}
	copy(disk[sector:], fat)
	copy(disk[sector+len(fat):], fat)
	copy(disk[rootAt:], root)
	return disk, nil
}

// boot writes the boot sector, which says how the rest is divided.
func boot(disk []byte, serial string) {
	copy(disk, "\xeb\x3c\x90MSWIN4.1")
	le := binary.LittleEndian
	le.PutUint16(disk[11:], sector)
	disk[13] = 1 // sectors of a cluster
	le.PutUint16(disk[14:], 1)
	disk[16] = 2 // tables
	le.PutUint16(disk[17:], rootEntries)
	le.PutUint16(disk[19:], sectors)
	disk[21] = media
	le.PutUint16(disk[22:], fatSectors)
	le.PutUint16(disk[24:], 32) // sectors of a track, and heads, of a disk that has none
	le.PutUint16(disk[26:], 64)
	disk[36] = 0x80 // drive
	disk[38] = 0x29 // serial, label and type follow
	copy(disk[39:43], serial)
	copy(disk[43:], label)
	copy(disk[54:], "FAT12   ")
	disk[510], disk[511] = 0x55, 0xaa
}

// link writes the entry of a cluster.
func link(fat []byte, cluster, to int) {
	at := cluster * 3 / 2
	if cluster%2 == 0 {
		fat[at], fat[at+1] = byte(to), fat[at+1]&0xf0|byte(to>>8)
	} else {
		fat[at], fat[at+1] = fat[at]&0x0f|byte(to<<4), byte(to>>4)
	}
}

// fatEntry is a file in the directory.
func fatEntry(short string, attributes byte, cluster, size int) []byte {
	e := make([]byte, entrySize)
	copy(e, short)
	e[11] = attributes
	le := binary.LittleEndian
	for _, at := range []int{16, 18, 24} { // made, read, changed
		le.PutUint16(e[at:], day)
	}
	le.PutUint16(e[26:], uint16(cluster))
	le.PutUint32(e[28:], uint32(size))
	return e
}

// longName is the entry before a file's that has its real name, of 13 characters at most.
func longName(name, short string) []byte {
	e := make([]byte, entrySize)
	e[0], e[11] = lastOfName|1, attrLongName
	for i := range 11 {
		e[13] = e[13]<<7 + e[13]>>1 + short[i]
	}
	units := append(utf16.Encode([]rune(name)), 0)
	for i, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
		unit := uint16(0xffff)
		if i < len(units) {
			unit = units[i]
		}
		binary.LittleEndian.PutUint16(e[at:], unit)
	}
	return e
}
