// SPDX-License-Identifier: Apache-2.0

package instances_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/instances"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const id = "4f0e3f6c-5d6e-4b6f-9d55-5b0f3bd6c0aa"

// volume reads a FAT12 file system by what its boot sector says, as Microsoft describes it: the
// label and the files.
func volume(disk []byte) (label string, files map[string][]byte, err error) {
	u16 := func(at int) int { return int(binary.LittleEndian.Uint16(disk[at:])) }
	sector, cluster, reserved, fats, entries, fatSize :=
		u16(11), int(disk[13]), u16(14), int(disk[16]), u16(17), u16(22)
	if u16(510) != 0xaa55 || u16(19)*sector != len(disk) {
		return "", nil, fmt.Errorf("no boot sector of a disk of %d bytes", len(disk))
	}
	rootAt := (reserved + fats*fatSize) * sector
	dataAt := rootAt + entries*32
	clusters := (len(disk) - dataAt) / (cluster * sector)
	if clusters >= 4085 {
		return "", nil, fmt.Errorf("%d clusters are not FAT12", clusters)
	}
	fat := disk[reserved*sector : (reserved+fatSize)*sector]
	if !bytes.Equal(fat, disk[(reserved+fatSize)*sector:rootAt]) {
		return "", nil, fmt.Errorf("the tables differ")
	}
	next := func(n int) int {
		v := int(binary.LittleEndian.Uint16(fat[n+n/2:]))
		if n%2 == 1 {
			return v >> 4
		}
		return v & 0xfff
	}
	data := func(first int) (text []byte) {
		for c := first; c >= 2 && c < 0xff8; c = next(c) {
			from := dataAt + (c-2)*cluster*sector
			text = append(text, disk[from:from+cluster*sector]...)
		}
		return text
	}
	files = map[string][]byte{}
	var read func(path string, entries []byte) error
	read = func(path string, entries []byte) error {
		long, sum := "", byte(0)
		for ; len(entries) > 0 && entries[0] != 0; entries = entries[32:] {
			e := entries[:32]
			if e[11] == 0x0f {
				var units []uint16
				for _, span := range [][2]int{{1, 11}, {14, 26}, {28, 32}} {
					for i := span[0]; i < span[1]; i += 2 {
						units = append(units, binary.LittleEndian.Uint16(e[i:]))
					}
				}
				part, _, _ := strings.Cut(string(utf16.Decode(units)), "\x00")
				if e[0]&0x40 != 0 {
					long = ""
				}
				long, sum = part+long, e[13]
				continue
			}
			if e[11]&0x08 != 0 {
				label = strings.TrimRight(string(e[:11]), " ")
				continue
			}
			first, size := int(binary.LittleEndian.Uint16(e[26:])), int(binary.LittleEndian.Uint32(e[28:]))
			if e[0] == '.' {
				if up := string(e[:11]) == "..         "; path == "" || !up && len(data(first)) != cluster*sector {
					return fmt.Errorf("the entry %q of %q is of the cluster %d", e[:11], path, first)
				}
				continue
			}
			is := byte(0)
			for _, c := range e[:11] {
				is = (is&1)<<7 + is>>1 + c
			}
			if is != sum {
				return fmt.Errorf("the long name %q is of another file", long)
			}
			text := data(first)
			if e[11]&0x10 != 0 {
				if err := read(path+long+"/", text); err != nil {
					return err
				}
				continue
			}
			if size > len(text) || len(text)-size >= cluster*sector {
				return fmt.Errorf("%s has %d bytes in clusters of %d", long, size, len(text))
			}
			files[path+long] = text[:size]
		}
		return nil
	}
	if err := read("", disk[rootAt:dataAt]); err != nil {
		return "", nil, err
	}
	return label, files, nil
}

// TestSeedDiskCanBeRead: whatever the user data is, cloud-init finds it.
func TestSeedDiskCanBeRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "data")
		data = bytes.Repeat(data, rapid.IntRange(1, 20).Draw(t, "times"))
		disk, err := instances.SeedDisk(
			plugins.InstanceSpec{UUID: id, Name: rapid.String().Draw(t, "name"), UserData: data})
		testproc.Check(t, err)
		label, files, err := volume(disk)
		testproc.Check(t, err)
		if label != "CIDATA" || len(files) != 2 {
			t.Errorf("label %q, %d files", label, len(files))
		}
		testproc.Same(t, cmp.Diff(data, files["user-data"],
			cmp.Transformer("text", func(b []byte) string { return string(b) })))
		var meta map[string]string
		if err := json.Unmarshal(files["meta-data"], &meta); err != nil || meta["instance-id"] != id ||
			meta["local-hostname"] == "" || len(meta["local-hostname"]) > 63 {
			t.Errorf("%s, %v", files["meta-data"], err)
		}
	})
}

// TestSeedDiskHasKeys: the key pair is where cloud-init's NoCloud looks for it: each line is a key,
// a certificate is one.
func TestSeedDiskHasKeys(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
	for key, want := range map[string]any{
		"": nil, "ssh-ed25519 AAAA me@home": []any{"ssh-ed25519 AAAA me@home"},
		"ssh-rsa A\r\n\n  ssh-rsa B \n": []any{"ssh-rsa A", "ssh-rsa B"}, pem: []any{pem},
	} {
		disk, err := instances.SeedDisk(plugins.InstanceSpec{UUID: id, Name: "web", KeyName: "my key", PublicKey: key})
		testproc.Check(t, err)
		_, files, err := volume(disk)
		testproc.Check(t, err)
		var meta map[string]any
		testproc.Check(t, json.Unmarshal(files["meta-data"], &meta))
		keys, _ := meta["public-keys"].(map[string]any)
		if diff := cmp.Diff(want, keys["my key"]); diff != "" || len(files["user-data"]) != 0 {
			t.Errorf("%q: %s, %d bytes of user data (-want +got):\n%s",
				key, files["meta-data"], len(files["user-data"]), diff)
		}
	}
}

// TestConfigDrive: as cloud-init's ConfigDrive looks for it, and Nova makes it.
func TestConfigDrive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	spec := plugins.InstanceSpec{UUID: id, Name: "My Web", ProjectID: "p", KeyName: "k", PublicKey: "ssh-rsa A",
		Metadata: map[string]string{"a": "b"}, ConfigDrive: true}
	for _, data := range []string{"", "#!/bin/sh\n" + strings.Repeat("x", 5000)} {
		spec.UserData = []byte(data)
		disk := testproc.Try(instances.SeedDisk(spec)).Or(t)
		label, files, err := volume(disk)
		if err != nil || label != "config-2" {
			t.Fatalf("label %q, %v", label, err)
		}
		if got, has := files["openstack/latest/user_data"]; string(got) != data || has != (data != "") ||
			len(files) != 1+min(len(data), 1) {
			t.Errorf("%d files, and user data of %d bytes", len(files), len(got))
		}
		var meta any
		testproc.Check(t, json.Unmarshal(files["openstack/latest/meta_data.json"], &meta))
		if diff := cmp.Diff(any(map[string]any{
			"uuid": id, "name": "My Web", "hostname": "my-web", "launch_index": 0.0, "project_id": "p",
			"devices": []any{}, "meta": map[string]any{"a": "b"},
			"public_keys": map[string]any{"k": "ssh-rsa A"},
			"keys":        []any{map[string]any{"name": "k", "type": "ssh", "data": "ssh-rsa A"}},
		}), meta); diff != "" {
			t.Errorf("meta_data.json (-want +got):\n%s", diff)
		}
	}
}

func TestHostNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, want := range map[string]string{
		"web": "web", "My Web_Server": "my-web-server",
		"...": "server-" + id, "": "server-" + id, "日本": "server-" + id, "-a.b-": "a.b",
		strings.Repeat("x", 100):       strings.Repeat("x", 63),
		strings.Repeat("x", 62) + "-y": strings.Repeat("x", 62), `a"\n`: "an",
	} {
		disk := testproc.Try(instances.SeedDisk(plugins.InstanceSpec{UUID: id, Name: name})).Or(t)
		_, files, err := volume(disk)
		testproc.Check(t, err)
		if !strings.Contains(string(files["meta-data"]), fmt.Sprintf("%q", want)) {
			t.Errorf("%q: %s", name, files["meta-data"])
		}
	}
}

func TestTooMuchUserData(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if _, err := instances.SeedDisk(
		plugins.InstanceSpec{UUID: id, UserData: make([]byte, instances.MaxUserData+1)}); err == nil {
		t.Error("it was taken")
	}
	disk, err := instances.SeedDisk(
		plugins.InstanceSpec{UUID: id, UserData: bytes.Repeat([]byte("x"), instances.MaxUserData)})
	testproc.Check(t, err)
	if _, files, err := volume(disk); err != nil || len(files["user-data"]) != instances.MaxUserData {
		t.Errorf("%d bytes, %v", len(files["user-data"]), err)
	}
}
