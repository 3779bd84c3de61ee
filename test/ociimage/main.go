// SPDX-License-Identifier: Apache-2.0

// Command ociimage writes a container image with one static program as an OCI layout in a tar
// archive, without a container engine. The same arguments give the same bytes.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
	user         = 65532 // the usual "nonroot"
)

type object = map[string]any

func main() {
	program := flag.String("program", "", "the static program")
	certificates := flag.String("ca", "/etc/ssl/certs/ca-certificates.crt", "CA certificates")
	version := flag.String("version", "", "version, and tag in the layout")
	revision := flag.String("revision", "", "commit")
	epoch := flag.Int64("epoch", 0, "time of everything, in seconds since 1970")
	out := flag.String("out", "", "the archive")
	flag.Parse()
	if *program == "" || *version == "" || *out == "" || *epoch == 0 {
		fmt.Fprintln(os.Stderr,
			"usage: ociimage -program FILE -version VERSION -epoch SECONDS -out FILE [-ca FILE] [-revision COMMIT]")
		os.Exit(64)
	}
	if err := build(*program, *certificates, *version, *revision, time.Unix(*epoch, 0).UTC(), *out); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func build(program, certificates, version, revision string, at time.Time, out string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(certificates)
	if err != nil {
		return fmt.Errorf("CA certificates (install the package ca-certificates, or use -ca): %w", err)
	}
	account := "compute-agent:x:" + strconv.Itoa(user) + ":"
	files := []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\n" + account + "\n")},
		{name: "etc/passwd", mode: 0o644,
			content: []byte("root:x:0:0:root:/:/sbin/nologin\n" + account + strconv.Itoa(user) +
				":compute-agent:/var/lib/compute-agent:/sbin/nologin\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: ca},
		{name: "tmp/", mode: 0o1777},
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: "usr/bin/compute-agent", mode: 0o755, content: binary},
		{name: "var/", mode: 0o755},
		{name: "var/lib/", mode: 0o755},
		{name: "var/lib/compute-agent/", mode: 0o700, owner: user},
	}
	layer, err := archive(files, at)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := zip.Write(layer); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	labels := object{
		"org.opencontainers.image.title":       "compute-agent",
		"org.opencontainers.image.description": "Placement and compute API of compute-agent",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/compute-agent/compute-agent",
		"org.opencontainers.image.version":     version,
		"org.opencontainers.image.revision":    revision,
		"org.opencontainers.image.created":     at.Format(time.RFC3339),
	}
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "created": at.Format(time.RFC3339),
		"config": object{
			"User":       strconv.Itoa(user) + ":" + strconv.Itoa(user),
			"Entrypoint": []string{"/usr/bin/compute-agent"}, "Cmd": []string{"--help"},
			"WorkingDir": "/var/lib/compute-agent",
			"Volumes":    object{"/var/lib/compute-agent": object{}}, "Labels": labels,
		},
		"rootfs":  object{"type": "layers", "diff_ids": []string{digest(layer)}},
		"history": []object{{"created": at.Format(time.RFC3339), "created_by": "compute-agent " + version}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(object{
		"schemaVersion": 2, "mediaType": manifestType, "annotations": labels,
		"config": descriptor(configType, config), "layers": []object{descriptor(layerType, packed.Bytes())},
	})
	if err != nil {
		return err
	}
	entry := descriptor(manifestType, manifest)
	entry["annotations"] = object{"org.opencontainers.image.ref.name": version}
	entry["platform"] = object{"architecture": runtime.GOARCH, "os": "linux"}
	index, err := json.Marshal(object{"schemaVersion": 2, "mediaType": indexType, "manifests": []object{entry}})
	if err != nil {
		return err
	}
	blob := func(content []byte) file {
		return file{name: "blobs/sha256/" + digest(content)[len("sha256:"):], mode: 0o644, content: content}
	}
	layout, err := archive([]file{
		{name: "blobs/", mode: 0o755},
		{name: "blobs/sha256/", mode: 0o755},
		blob(packed.Bytes()), blob(config), blob(manifest),
		{name: "index.json", mode: 0o644, content: index},
		{name: "oci-layout", mode: 0o644, content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	}, at)
	if err != nil {
		return err
	}
	return os.WriteFile(out, layout, 0o644)
}

// file is a member of an archive; a directory if its name ends with a slash.
type file struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

func archive(files []file, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner,
			Size: int64(len(f.content)), ModTime: at, Format: tar.FormatUSTAR}
		if f.name[len(f.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func descriptor(mediaType string, content []byte) object {
	return object{"mediaType": mediaType, "digest": digest(content), "size": len(content)}
}
