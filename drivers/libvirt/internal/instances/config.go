// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
)

// Key is the key of the driver's configuration that holds a [Config].
const Key = "instances"

// The keys of directories that the emulator's user must be able to enter. GuestsKey is not in the
// table, since DISK_GB is its file system.
const (
	ImagesKey = Key + ".images_path"
	GuestsKey = "instances_path"
)

// DefaultImages and DefaultGuests are the directories that the packages make for images and for the
// guests' disks. Both are outside of the agent's own directory, which is closed to the user that
// emulators run as.
const (
	DefaultImages = "/var/lib/compute-agent-images"
	DefaultGuests = "/var/lib/compute-agent-instances"
)

// Config is the table "instances" of the driver's configuration. If it is there, the driver creates
// and deletes guests. Names are Nova's where Nova has the option.
type Config struct {
	// ImagesPath is the directory of the images, each a file; "": [DefaultImages].
	ImagesPath string `json:"images_path"`
	// ImagesType is qcow2 (the default: disks are layers over their image) or raw (they are
	// copies).
	ImagesType string `json:"images_type"`
	// VirtType is kvm, qemu, or auto (the default): kvm where the host can.
	VirtType string `json:"virt_type"`
	// ShutdownTimeout is how long a guest has to shut down before it is switched off: "60s". "0s"
	// is not at all.
	ShutdownTimeout string `json:"shutdown_timeout"`
}

// Settings are a configuration that makes sense.
type Settings struct {
	images    string // "": DefaultImages
	layered   bool
	virt      string
	shutdown  time.Duration
	pollEvery time.Duration
}

// The words of the configuration.
const (
	qcow2Type = "qcow2"
	rawType   = "raw"
	kvm       = "kvm"
	emulated  = "qemu"
	auto      = "auto"
)

const (
	longestShutdown = time.Hour
	// pollInterval is how often a guest that shuts down is looked at without an event, and asked
	// once more, as by Nova.
	pollInterval = 10 * time.Second
)

// Parse checks a configuration. Errors: [*plugins.ConfigError].
func Parse(c Config) (Settings, error) {
	bad := func(key, format string, args ...any) (Settings, error) {
		return Settings{}, &plugins.ConfigError{Key: Key + "." + key, Problem: fmt.Sprintf(format, args...)}
	}
	s := Settings{images: c.ImagesPath, layered: true, virt: auto, shutdown: time.Minute, pollEvery: pollInterval}
	if c.ImagesPath != "" && (!filepath.IsAbs(c.ImagesPath) || filepath.Clean(c.ImagesPath) != c.ImagesPath) {
		return bad("images_path", "%q is not a clean absolute path", c.ImagesPath)
	}
	switch c.ImagesType {
	case "", qcow2Type:
	case rawType:
		s.layered = false
	default:
		return bad("images_type", "%q must be \"qcow2\" or \"raw\"", c.ImagesType)
	}
	switch c.VirtType {
	case "":
	case kvm, emulated, auto:
		s.virt = c.VirtType
	default:
		return bad("virt_type", "%q must be \"kvm\", \"qemu\" or \"auto\"", c.VirtType)
	}
	if c.ShutdownTimeout != "" {
		d, err := time.ParseDuration(c.ShutdownTimeout)
		if err != nil || d < 0 || d > longestShutdown {
			return bad("shutdown_timeout",
				"%q must be a time from \"0s\" to \"1h\", such as \"60s\"", c.ShutdownTimeout)
		}
		s.shutdown = d
	}
	return s, nil
}

// domainType returns libvirt's type of the domains on a host: KVM, or emulated.
func (s Settings) domainType(h Host) string {
	if s.virt == kvm || s.virt == auto && h.KVM {
		return kvm
	}
	return emulated
}
