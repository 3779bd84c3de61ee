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

// [SeedDisk] writes the disk from which cloud-init learns what its owner wants of a guest: a FAT
// file system, for the datasource NoCloud (the label CIDATA, the files meta-data and user-data) or,
// if the owner asks for a config drive, for ConfigDrive (the label config-2, the files of
// openstack/latest).

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

	noCloudLabel     = "CIDATA     "
	configDriveLabel = "config-2   " // in lower case, as Nova has it

	attrReadOnly  = 0x01
	attrLabel     = 0x08
	attrDirectory = 0x10
	attrLongName  = 0x0f
	lastOfName    = 0x40
	longNamePart  = 13 // characters of one entry
	endOfChain    = 0xfff
	// day is 2000-01-01: equal instances have equal disks.
	day = 20<<9 | 1<<5 | 1
)

// seedFile is a file, or a directory with files. short is its name for systems without long names.
type seedFile struct {
	name, short string
	text        []byte
	files       []seedFile
}

// needsSeed reports whether an instance needs a config drive.
func needsSeed(spec plugins.InstanceSpec) bool {
	return len(spec.UserData) > 0 || spec.PublicKey != "" || spec.ConfigDrive
}

// SeedDisk is the content of the disk for an instance: its uuid, the name that its owner gave it,
// the public key of its key pair, and the user data.
func SeedDisk(spec plugins.InstanceSpec) ([]byte, error) {
	if len(spec.UserData) > MaxUserData {
		return nil, fmt.Errorf("the user data has %d bytes, more than %d", len(spec.UserData), MaxUserData)
	}
	if spec.ConfigDrive {
		return configDrive(spec)
	}
	meta := map[string]any{"instance-id": spec.UUID, "local-hostname": hostname(spec.Name, spec.UUID)}
	if spec.PublicKey != "" {
		meta["public-keys"] = map[string][]string{spec.KeyName: keyLines(spec.PublicKey)}
	}
	text, err := json.Marshal(meta) // JSON is YAML
	if err != nil {
		return nil, err
	}
	return filesystem(spec.UUID, noCloudLabel, []seedFile{
		{name: "meta-data", short: "META-D~1   ", text: append(text, '\n')},
		{name: "user-data", short: "USER-D~1   ", text: spec.UserData},
	})
}

// configDrive is a disk as Nova makes it. There is no network_data.json: cloud-init then configures
// whatever network the guest has, where an empty one would have it configure none.
func configDrive(spec plugins.InstanceSpec) ([]byte, error) {
	type key struct {
		Name string `json:"name"`
		Type string `json:"type"`
		Data string `json:"data"`
	}
	meta := map[string]any{
		"uuid": spec.UUID, "name": spec.Name, "hostname": hostname(spec.Name, spec.UUID), "launch_index": 0,
		"project_id": spec.ProjectID, "devices": []string{},
	}
	if len(spec.Metadata) > 0 {
		meta["meta"] = spec.Metadata
	}
	if spec.PublicKey != "" {
		kind := "ssh"
		if isCertificate(spec.PublicKey) {
			kind = "x509"
		}
		meta["public_keys"], meta["keys"] = map[string]string{spec.KeyName: spec.PublicKey},
			[]key{{spec.KeyName, kind, spec.PublicKey}}
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, err
	}
	files := []seedFile{{name: "meta_data.json", short: "META_D~1JSO", text: text}}
	if len(spec.UserData) > 0 {
		files = append(files, seedFile{name: "user_data", short: "USER_D~1   ", text: spec.UserData})
	}
	latest := seedFile{name: "latest", short: "LATEST     ", files: files}
	return filesystem(spec.UUID, configDriveLabel,
		[]seedFile{{name: "openstack", short: "OPENST~1   ", files: []seedFile{latest}}})
}

// isCertificate tells a certificate in PEM from a line of authorized_keys.
func isCertificate(key string) bool { return strings.HasPrefix(strings.TrimSpace(key), "-----BEGIN ") }

// keyLines are the lines of authorized_keys: cloud-init reads each as a key. A certificate stays
// whole.
func keyLines(key string) []string {
	if isCertificate(key) {
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
func filesystem(serial, label string, files []seedFile) ([]byte, error) {
	d := &volume{disk: make([]byte, sectors*sector), fat: make([]byte, fatSectors*sector), next: 2}
	boot(d.disk, serial, label)
	link(d.fat, 0, 0xf00|media)
	link(d.fat, 1, endOfChain)
	entries, err := d.directory(files, 0)
	if err != nil {
		return nil, err
	}
	root := append(fatEntry(label, attrLabel, 0, 0), entries...)
	if len(root) > rootEntries*entrySize {
		return nil, errFull
	}
	copy(d.disk[sector:], d.fat)
	copy(d.disk[sector+len(d.fat):], d.fat)
	copy(d.disk[rootAt:], root)
	return d.disk, nil
}

// volume is a file system that is written.
type volume struct {
	disk, fat []byte
	next      int // cluster
}

var errFull = errors.New("the files do not fit on the disk")

// directory writes files and gives their entries. parent is the cluster of the directory that they
// are in, 0 for the root.
func (v *volume) directory(files []seedFile, parent int) (entries []byte, err error) {
	for _, f := range files {
		attributes, first := byte(attrReadOnly), 0
		if f.files == nil {
			first, err = v.write(f.text)
		} else {
			attributes = attrDirectory
			if first, err = v.write(make([]byte, sector)); err == nil {
				err = v.fill(first, parent, f.files)
			}
		}
		if err != nil {
			return nil, err
		}
		entries = append(append(entries, longName(f.name, f.short)...),
			fatEntry(f.short, attributes, first, len(f.text))...)
	}
	return entries, nil
}

// fill writes the files of a directory that has a cluster.
func (v *volume) fill(cluster, parent int, files []seedFile) error {
	inner, err := v.directory(files, cluster)
	if err != nil {
		return err
	}
	entries := append(append(fatEntry(".          ", attrDirectory, cluster, 0),
		fatEntry("..         ", attrDirectory, parent, 0)...), inner...)
	if len(entries) > sector {
		return errFull
	}
	copy(v.disk[dataAt+(cluster-2)*sector:], entries)
	return nil
}

// write writes what a file has, and gives its first cluster; an empty file has none.
func (v *volume) write(text []byte) (first int, err error) {
	clusters := (len(text) + sector - 1) / sector
	at := dataAt + (v.next-2)*sector
	if at+clusters*sector > len(v.disk) {
		return 0, errFull
	}
	copy(v.disk[at:], text)
	for i := range clusters {
		if i == clusters-1 {
			link(v.fat, v.next+i, endOfChain)
		} else {
			link(v.fat, v.next+i, v.next+i+1)
		}
	}
	if clusters > 0 {
		first = v.next
	}
	v.next += clusters
	return first, nil
}

// boot writes the boot sector, which says how the rest is divided.
func boot(disk []byte, serial, label string) {
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

// longName is the entries before a file's that have its real name, the end of it first.
func longName(name, short string) []byte {
	units := utf16.Encode([]rune(name))
	parts := (len(units) + longNamePart - 1) / longNamePart
	if len(units)%longNamePart > 0 {
		units = append(units, 0)
	}
	sum := byte(0)
	for i := range 11 {
		sum = sum<<7 + sum>>1 + short[i]
	}
	var out []byte
	for part := parts; part > 0; part-- {
		e := make([]byte, entrySize)
		e[0], e[11], e[13] = byte(part), attrLongName, sum
		if part == parts {
			e[0] |= lastOfName
		}
		for i, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
			unit := uint16(0xffff)
			if n := (part-1)*longNamePart + i; n < len(units) {
				unit = units[n]
			}
			binary.LittleEndian.PutUint16(e[at:], unit)
		}
		out = append(out, e...)
	}
	return out
}
