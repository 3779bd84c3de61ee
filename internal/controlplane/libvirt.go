// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/libvirtd"
)

// Libvirt is the libvirt daemon of the libvirt driver: that of this machine, or a private one.
type Libvirt struct {
	uri     string
	guests  bool // the driver manages guests, also if its configuration does not say so
	private *libvirtd.Daemon
	options libvirtd.Options // of the private one
	kept    bool             // RunStandalone stops the private one
}

// FindLibvirt finds the libvirt daemon for the libvirt driver, or starts a private one. It returns
// nil if the driver is not used or its uri is configured. With guests the driver is to manage
// guests.
//
// Errors: those of [libvirtd.StartPrivate].
func FindLibvirt(ctx context.Context, cfg *config.Config, guests bool, log zerolog.Logger) (*Libvirt, error) {
	d := cfg.Drivers["libvirt"]
	switch {
	case d == nil && len(cfg.Drivers) > 0, d != nil && !d.Enabled:
		return nil, nil
	case d != nil && d.Config["uri"] != nil:
		return nil, nil
	}
	l := &Libvirt{guests: guests, options: libvirtd.Options{
		Dir:        filepath.Join(cfg.Agent.StateDir, "libvirt"),
		RuntimeDir: filepath.Join(cfg.Agent.RuntimeDir, "libvirt"), Logger: log,
	}}
	uri, found, why := libvirtd.Find(ctx)
	if found {
		log.Info().Str("uri", uri).Msg("Using the libvirt daemon of this machine.")
		l.uri = uri
		return l, nil
	}
	log.Info().Str("reason", why).
		Msg("No libvirt daemon answers on this machine; starting a private one, which stops with the agent.")
	var err error
	if l.private, err = libvirtd.StartPrivate(ctx, l.options); err != nil {
		return nil, err
	}
	l.uri = l.private.URI()
	return l, nil
}

// Configure sets the uri of the libvirt driver, unless it is configured, and what guests need.
func (l *Libvirt) Configure(cfg *config.Config) {
	d := cfg.Drivers["libvirt"]
	if d == nil || d.Config["uri"] != nil {
		return
	}
	if d.Config == nil {
		d.Config = map[string]any{}
	}
	d.Config["uri"] = l.uri
	// guests of a private daemon need their own directory
	if l.guests || l.private != nil && d.Config["instances"] != nil {
		manageGuests(cfg.Agent.StateDir, d, l.private != nil)
	}
}

// Stop stops a private daemon, unless [RunStandalone] has it. l may be nil.
func (l *Libvirt) Stop(ctx context.Context) {
	if l != nil && l.private != nil && !l.kept {
		_ = l.private.Stop(context.WithoutCancel(ctx))
	}
}

// restartPause is the time between two attempts to restart a private daemon.
const restartPause = 5 * time.Second

// keep restarts the private daemon if it exits, at the same socket, and stops it with ctx. While it
// is down, the driver is not ready, and Placement is not changed.
func (l *Libvirt) keep(ctx context.Context) error {
	daemon, opts := l.private, l.options
	for {
		select {
		case <-ctx.Done():
			return daemon.Stop(context.WithoutCancel(ctx))
		case <-daemon.Done():
		}
		_ = daemon.Stop(context.WithoutCancel(ctx)) // clean up; its end is in the log
		for next := (*libvirtd.Daemon)(nil); next == nil; daemon = next {
			if !wait.For(ctx, restartPause) {
				return nil
			}
			var err error
			if next, err = libvirtd.StartPrivate(ctx, opts); err != nil {
				opts.Logger.Error().Err(err).Msg("Cannot restart the private libvirt daemon; retrying.")
			}
		}
		opts.Logger.Info().Str("uri", daemon.URI()).Msg("Restarted the private libvirt daemon.")
	}
}

// machineImages is the image directory for the machine's libvirt daemon. It is not below the state
// directory, which is not readable for the user of the emulators.
const machineImages = "/var/lib/compute-agent-images"

// manageGuests lets the libvirt driver manage guests where it is able to: as root, or with a
// private daemon. Configured keys stay.
func manageGuests(stateDir string, d *config.Driver, private bool) {
	if !private && os.Geteuid() != 0 {
		return
	}
	images, guests := filepath.Join(stateDir, "images"), filepath.Join(stateDir, "instances")
	if !private {
		images = machineImages
	}
	if os.MkdirAll(images, 0o755) != nil || private && os.MkdirAll(guests, 0o755) != nil {
		return // the driver would fail too; it stays read-only
	}
	if d.Config["instances"] == nil {
		d.Config["instances"] = map[string]any{"images_path": images}
	}
	if private && d.Config["instances_path"] == nil { // the default is not for a private daemon
		d.Config["instances_path"] = guests
	}
	d.WritePaths = append(d.WritePaths, images, guests) // below the state directory, which is closed to drivers
}
