// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// files is a source of files: each is its text, in parts of one byte, and read fails after left.
type files struct {
	text map[string]string
	left int
	read []string
}

func (f *files) ReadFile(_ context.Context, name string, offset int64, each plugins.ChunkFunc) error {
	f.read = append(f.read, fmt.Sprint(name, "@", offset))
	for i, b := range []byte(f.text[name]) {
		if int64(i) < offset {
			continue
		}
		if f.left--; f.left < 0 {
			return errors.New("the source went away")
		}
		if err := each(int64(i), []byte{b}); err != nil {
			return err
		}
	}
	return nil
}

func TestDepartAndLeave(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), t.Context()
	offer, err := k.Depart(ctx, "cn1", strings.ToUpper(oneInstance))
	if err != nil || offer != "from cn1" {
		t.Errorf("Depart: %q, %v", offer, err)
	}
	testproc.NoErrorf(t, k.Leave(ctx, "cn1", oneInstance), "Leave")
	_, err = k.Depart(ctx, "not-found", oneInstance)
	if !errors.Is(err, plugins.ErrInstanceNotFound) || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Depart of what is not there: %v", err)
	}
	var fault *plugins.InstanceFault
	if _, err = k.Depart(ctx, "fault", oneInstance); !errors.As(err, &fault) || fault.UUID != oneInstance ||
		errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("Depart of what cannot be moved: %v", err)
	}
	if err = k.Leave(ctx, "fault", oneInstance); !errors.As(err, &fault) {
		t.Errorf("Leave of another tool's: %v", err)
	}
	if _, err = k.Depart(ctx, "cn1", "x"); !errors.Is(err, driverclient.ErrBadRequest) {
		t.Errorf("Depart of no uuid: %v", err)
	}
}

func TestFilesOfInstancesAreRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), t.Context()
	read := func(name string, offset int64) (string, error) {
		text := ""
		err := k.ReadFile(ctx, "cn1", oneInstance, name, offset, func(offset int64, data []byte) error {
			text += fmt.Sprintf("%s%d ", data, offset)
			return nil
		})
		return text, err
	}
	if text, err := read("sparse", 15); err != nil || text != "a20 r30 s40 e50 " {
		t.Errorf("got %q, %v", text, err)
	}
	testproc.Try(read("backwards", 0)).ErrorHas(t, "was sent already", "parts in the wrong order: %v")
	var fault *plugins.InstanceFault
	if _, err := read("../passwd", 0); !errors.As(err, &fault) || fault.UUID != oneInstance {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, bad := range []string{"", strings.Repeat("n", plugins.MaxFileName+1), "\xff"} {
		testproc.Try(read(bad, 0)).ErrorIs(t, driverclient.ErrBadRequest, "the name %.10q: %v", bad)
	}
	own := errors.New("the reader's own")
	if err := k.ReadFile(ctx, "cn1", oneInstance, "sparse", 0,
		func(int64, []byte) error { return own }); !errors.Is(err, own) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestInstancesArrive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx, tree := keep(t, nil), t.Context(), oneNode(t)
	spec := plugins.InstanceSpec{UUID: oneInstance}
	arrive := func(image string, source *files) (plugins.Instance, error) {
		spec := spec
		spec.Image = image
		return k.Arrive(ctx, "cn1", spec, tree, plugins.Arrival{Node: "cn2", Offer: "disk", Files: source})
	}
	source := &files{text: map[string]string{"disk": strings.Repeat("x", 30) + "ab"}, left: 100}
	is, err := arrive("", source)
	want := plugins.Instance{UUID: oneInstance, Power: plugins.PowerShutdown}
	for i := range 30 {
		want.Name += fmt.Sprintf("x%d ", i)
	}
	want.Name = strings.TrimSpace(want.Name + "a30 b31 a30 b31 ")
	if err != nil || strings.TrimSpace(is.Name) != want.Name {
		t.Errorf("got %v, %v", is, err)
	}
	testproc.Same(t, cmp.Diff([]string{"disk@0", "disk@30"}, source.read))
	is, err = arrive("again", &files{text: map[string]string{"disk": strings.Repeat("x", 32)}, left: 2})
	if gone := "reading the file disk from the source: the source went away"; err != nil ||
		strings.TrimSpace(is.Name) != "x0 x1 "+gone+" "+gone {
		t.Errorf("a source that goes away: %v, %v", is, err)
	}
	var fault *plugins.InstanceFault
	if _, err = arrive("full", &files{text: map[string]string{"disk": strings.Repeat("x", 1000)},
		left: 1000}); !errors.As(err, &fault) || fault.UUID != oneInstance || errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("a driver whose disk is full: %v", err)
	}
	is, err = k.Arrive(ctx, "cn1", spec, tree, plugins.Arrival{Node: "cn2", Evacuation: true})
	if err != nil || is.Name != "evacuated" {
		t.Errorf("an evacuation: %v, %v", is, err)
	}
	for _, bad := range []plugins.Arrival{{Node: "cn2"},
		{Evacuation: true}, {Node: "cn2", Evacuation: true, Offer: strings.Repeat("o", plugins.MaxOffer+1)}} {
		testproc.Try(k.Arrive(ctx, "cn1", spec, tree, bad)).ErrorIs(t, driverclient.ErrBadRequest, "%.60v: %v", bad)
	}
}

func TestMovesNeedTheCapability(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rig := newRig(t)
	p := rig.mustStart(chaosSpec("", nil))
	_, depart := p.Depart(t.Context(), "cn1", oneInstance)
	_, arrive := p.Arrive(t.Context(), "cn1", plugins.InstanceSpec{UUID: oneInstance}, oneNode(t),
		plugins.Arrival{Node: "cn2", Evacuation: true})
	leave := p.Leave(t.Context(), "cn1", oneInstance)
	read := p.ReadFile(t.Context(), "cn1", oneInstance, "disk", 0, func(int64, []byte) error { return nil })
	for call, err := range map[string]error{"Depart": depart, "Arrive": arrive, "Leave": leave, "ReadFile": read} {
		if !errors.Is(err, plugins.ErrUnsupported) || errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("%s: %v", call, err)
		}
	}
}
