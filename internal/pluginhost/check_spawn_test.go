// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"testing"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCheckSpawn: the driver gets what a Spawn would get, errors are typed and about the instance,
// and what cannot be asked is not sent.
func TestCheckSpawn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	ask := func(uuid, image string) error {
		return k.CheckSpawn(ctx, "cn1", plugins.InstanceSpec{UUID: uuid, Image: image}, oneNode(t))
	}
	testproc.NoError(t, ask(oneInstance, "debian"))
	var fault *plugins.InstanceFault
	if err := ask(oneInstance, "missing"); !errors.As(err, &fault) || fault.UUID != oneInstance ||
		fault.Reason != "no image on cn1: true" || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("an image that is missing: %v", err)
	}
	if err := ask(oneInstance, "error"); err == nil || errors.As(err, &fault) {
		t.Errorf("a driver that cannot tell: %v", err)
	}
	testproc.ErrorIs(t, ask("x", "debian"), driverclient.ErrBadRequest, "no uuid: %v")
	if err := k.CheckSpawn(ctx, "cn1", plugins.InstanceSpec{UUID: oneInstance}, nil); !errors.Is(err,
		driverclient.ErrBadRequest) {
		t.Errorf("no tree: %v", err)
	}
	p := newRig(t).mustStart(chaosSpec("", nil))
	if err := p.CheckSpawn(ctx, "cn1", plugins.InstanceSpec{UUID: oneInstance},
		oneNode(t)); !errors.Is(err, plugins.ErrUnsupported) {
		t.Errorf("a plugin without instances: %v", err)
	}
}

// TestRestore: as TestCheckSpawn, and the answer is about the instance.
func TestRestore(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	restore := func(uuid, image string) (plugins.Instance, error) {
		return k.Restore(ctx, "cn1", plugins.InstanceSpec{UUID: uuid, Image: image, Name: "web"}, oneNode(t))
	}
	if is, err := restore(oneInstance, "debian"); err != nil ||
		is != (plugins.Instance{UUID: oneInstance, Name: "web", Power: plugins.PowerShutdown}) {
		t.Errorf("Restore: got %+v, %v, want the instance, shut down", is, err)
	}
	var fault *plugins.InstanceFault
	if _, err := restore(oneInstance, "missing"); !errors.As(err, &fault) || fault.UUID != oneInstance ||
		fault.Reason != "no image on cn1: true" || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("disks that are missing: %v", err)
	}
	if _, err := restore(oneInstance, "error"); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a driver that cannot tell: %v", err)
	}
	if _, err := restore(oneInstance, "other"); !errors.Is(err, driverclient.ErrBadReply) {
		t.Errorf("another instance: %v", err)
	}
	if _, err := restore("x", "debian"); !errors.Is(err, driverclient.ErrBadRequest) {
		t.Errorf("no uuid: %v", err)
	}
	p := newRig(t).mustStart(chaosSpec("", nil))
	if _, err := p.Restore(ctx, "cn1", plugins.InstanceSpec{UUID: oneInstance},
		oneNode(t)); !errors.Is(err, plugins.ErrUnsupported) {
		t.Errorf("a plugin without instances: %v", err)
	}
}
