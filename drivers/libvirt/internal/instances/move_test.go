// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/qcow2"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// otherNode is the node of the second host of a move.
const otherNode = "cn2"

// pair is two hosts, the second with another node, whose guests' directory is the first's or its
// own.
func pair(t *testing.T, shared bool) (from, to *rig) {
	t.Helper()
	from, to = newRig(t, Config{}), newRig(t, Config{})
	to.used.Node = func(context.Context) (string, error) { return otherNode, nil }
	if shared {
		to.dir, to.images = from.dir, from.images
		to.used.images = from.images
	}
	to.SetSetup(&to.used)
	return from, to
}

// layeredRequest is a guest whose root disk is a layer over an image that both hosts have.
func layeredRequest(from, to *rig) plugins.InstanceSpec {
	for _, r := range []*rig{from, to} {
		r.write(filepath.Join(r.images, "debian"), strings.Repeat("image", 1000))
	}
	spec := request(1)
	spec.Image = "debian"
	return spec
}

// reading reads the files of an instance on a host.
type reading struct {
	*rig
	files []string
	err   error
}

func (r *reading) ReadFile(ctx context.Context, name string, offset int64, each plugins.ChunkFunc) error {
	r.files = append(r.files, name)
	if r.err != nil {
		return r.err
	}
	return r.Manager.ReadFile(ctx, node, id(1), name, offset, each)
}

func (r *rig) depart(t *testing.T) offer {
	t.Helper()
	text := testproc.Try(r.Depart(t.Context(), node, id(1))).Or(t)
	if len(text) > plugins.MaxOffer {
		t.Errorf("the offer has %d bytes", len(text))
	}
	var out offer
	testproc.Check(t, json.Unmarshal([]byte(text), &out))
	return out
}

func (o offer) text(t *testing.T) string {
	t.Helper()
	text := testproc.Try(json.Marshal(o)).Or(t)
	return string(text)
}

// disksIn are the files of an instance that move, by name.
func disksIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range movable {
		path := filepath.Join(dir, domain.Name(id(1)), name)
		if _, err := os.Stat(path); err == nil {
			out[name] = blocksOf(t, path)
		}
	}
	return out
}

// blocksOf are the blocks of a file that are not empty, each with its offset: disks are mostly
// holes.
func blocksOf(t *testing.T, path string) string {
	t.Helper()
	f := testproc.Try(os.Open(path)).Or(t)
	defer func() { testproc.NoError(t, f.Close()) }()
	const size = 4096
	var out strings.Builder
	block, empty := make([]byte, size), make([]byte, size)
	for at := int64(0); ; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return out.String() // only a hole is left
		}
		testproc.Check(t, err)
		at = data - data%size
		n, err := f.ReadAt(block, at)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if !bytes.Equal(block[:n], empty[:n]) {
			fmt.Fprintf(&out, "%d: %s\n", at, bytes.TrimRight(block[:n], "\x00"))
		}
		at += size
	}
}

// scribble writes to the swap disk of an instance, far from its beginning.
func scribble(t *testing.T, dir string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, domain.Name(id(1)), swapDisk), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("what the guest wrote"), 40<<20)
		err = errors.Join(err, f.Close())
	}
	testproc.Check(t, err)
}

func TestInstancesMoveThereAndBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			from, to := pair(t, shared)
			spec := layeredRequest(from, to)
			from.mustSpawn(spec)
			scribble(t, from.dir)
			from.domains[id(1)].autostart = true
			off := from.depart(t)
			if b := from.domains[id(1)]; b.ID != -1 || b.autostart {
				t.Errorf("after Depart: id %d, autostart %t", b.ID, b.autostart)
			}
			if again := from.depart(t); again.Probe != off.Probe {
				t.Error("a repeated Depart marks the directory in another way")
			}
			before := disksIn(t, from.dir)
			source := &reading{rig: from}
			arrival := plugins.Arrival{Node: node, Offer: off.text(t), Files: source}
			for range 2 {
				is, err := to.Arrive(t.Context(), otherNode, spec, nil, arrival)
				if err != nil || is.Power != plugins.PowerShutdown || is.Name != spec.Name {
					t.Fatalf("arrived: %+v, %v", is, err)
				}
			}
			want := []string{rootDisk, swapDisk, seedDisk}
			if shared {
				want = nil
			}
			testproc.Samef(t, cmp.Diff(want, source.files), "files that were read")
			after := disksIn(t, to.dir)
			if !shared { // the layer leans on the image of its own host
				root := testproc.Try(os.ReadFile(filepath.Join(to.dir, domain.Name(id(1)), rootDisk))).Or(t)
				path, err := qcow2.Backing(bytes.NewReader(root))
				if err != nil || path != filepath.Join(to.images, "debian") {
					t.Errorf("the root disk is a layer over %q: %v", path, err)
				}
				delete(before, rootDisk)
				delete(after, rootDisk)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Error("the disks are not the same")
			}
			testproc.Try(to.SetPower(t.Context(), otherNode, id(1), plugins.PowerRunning, false)).Or(t)
			if is, err := to.Arrive(t.Context(), otherNode, spec, nil, arrival); err != nil ||
				is.Power != plugins.PowerRunning {
				t.Errorf("a repeated Arrive: %+v, %v", is, err)
			}

			// Back: what was reverted leaves the destination, and the source starts again.
			for range 2 {
				testproc.Check(t, to.Leave(t.Context(), otherNode, id(1)))
			}
			if left := to.left(); len(left) != map[bool]int{false: 0, true: 1}[shared] {
				t.Errorf("left on the destination: %v", left)
			}
			testproc.Try(from.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false)).Or(t)

			// There for good.
			off = from.depart(t)
			testproc.Try(to.Arrive(t.Context(), otherNode,
				spec, nil, plugins.Arrival{Node: node, Offer: off.text(t), Files: source})).Or(t)
			for range 2 {
				testproc.Check(t, from.Leave(t.Context(), node, id(1)))
			}
			if _, err := os.Stat(filepath.Join(to.dir, domain.Name(id(1)), rootDisk)); err != nil {
				t.Errorf("its disk left with the source: %v", err)
			}
			testproc.Check(t, to.Destroy(t.Context(), otherNode, id(1)))
			if left := slices.Concat(from.left(), to.left()); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestInstancesAreEvacuated(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		name           string
		shared, claims bool
	}{{"shared", true, true}, {"shared since before there were claims", true, false}, {"not shared", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			from, to := pair(t, c.shared)
			spec := layeredRequest(from, to)
			from.mustSpawn(spec)
			scribble(t, from.dir)
			d := directory{path: from.dir, name: domain.Name(id(1))}
			if !c.claims {
				testproc.Check(t, os.Remove(d.claimOf(node)))
			}
			for range 2 {
				is, err := to.Arrive(t.Context(), otherNode, spec, nil, plugins.Arrival{Node: node, Evacuation: true})
				if err != nil || is.Power != plugins.PowerShutdown {
					t.Fatalf("arrived: %+v, %v", is, err)
				}
			}
			if got := strings.Contains(disksIn(t, to.dir)[swapDisk], "what the guest wrote"); got != c.shared {
				t.Errorf("the former disk is used: %t", got)
			}
			testproc.Try(to.SetPower(t.Context(), otherNode, id(1), plugins.PowerRunning, false)).Or(t)
			if err := from.Leave(t.Context(), node, id(1)); err != nil { // it is back, with its guest
				t.Fatal(err)
			}
			if _, there := from.domains[id(1)]; there {
				t.Error("the host that was evacuated keeps the guest")
			}
			if len(disksIn(t, to.dir)) != 3 {
				t.Errorf("the host that was evacuated took disks away: %v", to.left())
			}
			testproc.Check(t, to.Leave(t.Context(), otherNode, id(1)))
			if left := slices.Concat(from.left(), to.left()); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestNothingIsLeftOfAnInstanceThatCannotArrive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		shared  bool
		prepare func(t *testing.T, to *rig, off *offer, spec *plugins.InstanceSpec, a *plugins.Arrival)
		reason  string
	}{
		"no space": {prepare: func(_ *testing.T, _ *rig, off *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
			off.Files[1].Size, off.Files[1].Used = 64<<40, 64<<40
		}, reason: "no space left"},
		"no image": {prepare: func(t *testing.T, to *rig, _ *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
			testproc.Check(t, os.Remove(filepath.Join(to.images, "debian")))
		}, reason: "no image"},
		"the hypervisor refuses": {prepare: func(_ *testing.T, to *rig, _ *offer, _ *plugins.InstanceSpec,
			_ *plugins.Arrival) {
			to.fail = 1
		}, reason: "rejects"},
		"refused with shared storage": {shared: true,
			prepare: func(_ *testing.T, to *rig, _ *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
				to.fail = 1
			}, reason: "rejects"},
		"no offer": {prepare: func(_ *testing.T, _ *rig,
			off *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
			off.Probe = ""
		}, reason: "offer"},
		"another path": {prepare: func(_ *testing.T, _ *rig, off *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
			off.Files[0].Name = "../x"
		}, reason: "offer"},
		"another layer": {prepare: func(_ *testing.T, _ *rig, off *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
			off.Files[1].Format = qcow2Type
		}, reason: "offer"},
		"a machine type": {prepare: func(_ *testing.T,
			_ *rig, off *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
			off.Machine = "<q35>"
		}, reason: "offer"},
		"more than the size": {prepare: func(_ *testing.T,
			_ *rig, off *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
			off.Files[1].Size = 100
		}, reason: "could not create its disks"},
		"its own node": {prepare: func(_ *testing.T, _ *rig, _ *offer, _ *plugins.InstanceSpec,
			a *plugins.Arrival) {
			a.Node = otherNode
		}, reason: "same name"},
		"disks in the way": {prepare: func(t *testing.T,
			to *rig, _ *offer, _ *plugins.InstanceSpec, _ *plugins.Arrival) {
			testproc.Check(t, os.Mkdir(filepath.Join(to.dir, domain.Name(id(1))), 0o700))
		}, reason: "disks of it already"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := pair(t, c.shared)
			spec := layeredRequest(from, to)
			from.mustSpawn(spec)
			off := from.depart(t)
			before := disksIn(t, from.dir)
			a := plugins.Arrival{Node: node, Files: &reading{rig: from}}
			c.prepare(t, to, &off, &spec, &a)
			there := to.left()
			a.Offer = off.text(t)
			_, err := to.Arrive(t.Context(), otherNode, spec, nil, a)
			var fault *plugins.InstanceFault
			if !errors.As(err, &fault) || !strings.Contains(fault.Reason, c.reason) {
				t.Errorf("got %v", err)
			}
			testproc.Samef(t, cmp.Diff(there, to.left()), "left")
			if diff := cmp.Diff(before, disksIn(t, from.dir)); diff != "" {
				t.Error("the disks of the source were changed")
			}
			if _, err := from.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false); err != nil {
				t.Errorf("the source does not start again: %v", err)
			}
		})
	}
}

// TestACopyThatWasInterruptedIsMadeAgain: the source cannot be reached for a while.
func TestACopyThatWasInterruptedIsMadeAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	from, to := pair(t, false)
	spec := layeredRequest(from, to)
	from.mustSpawn(spec)
	off := from.depart(t)
	source := &reading{rig: from, err: errors.New("connection reset by peer")}
	a := plugins.Arrival{Node: node, Offer: off.text(t), Files: source}
	_, err := to.Arrive(t.Context(), otherNode, spec, nil, a)
	if err == nil || errors.As(err, new(*plugins.InstanceFault)) || !errors.Is(err, source.err) {
		t.Fatalf("got %v", err)
	}
	source.err = nil
	testproc.Try(to.Arrive(t.Context(), otherNode, spec, nil, a)).Or(t)
	testproc.Equal(t, len(disksIn(t, to.dir)), 3, "arrived with %d disks")
}

func TestWhatDoesNotDepart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t, Config{})
	var fault *plugins.InstanceFault
	testproc.Try(r.Depart(t.Context(), node, id(1))).ErrorIs(t, plugins.ErrInstanceNotFound, "what is not there: %v")
	r.unmanaged(2)
	if _, err := r.Depart(t.Context(), node, id(2)); !errors.As(err, &fault) {
		t.Errorf("another tool's: %v", err)
	}
	if err := r.Leave(t.Context(), node, id(2)); !errors.As(err, &fault) {
		t.Errorf("another tool's: %v", err)
	}
	r.mustSpawn(request(1))
	for _, change := range []struct{ old, new, reason string }{
		{"</devices>", "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm></devices>", "TPM"},
		{filepath.Join(domain.Name(id(1)), swapDisk), "theirs", "did not create"},
	} {
		b := r.domains[id(1)]
		xml := b.XML
		b.XML = strings.Replace(xml, change.old, change.new, 1)
		if _, err := r.Depart(t.Context(), node, id(1)); !errors.As(err, &fault) ||
			!strings.Contains(fault.Reason, change.reason) {
			t.Errorf("%s: %v", change.reason, err)
		}
		if b.ID == -1 {
			t.Errorf("%s: it was switched off", change.reason)
		}
		b.XML = xml
	}
}

func TestFilesOfInstancesThatAreNotToBeRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t, Config{})
	r.mustSpawn(request(1))
	read := func(name string) error {
		return r.ReadFile(t.Context(), node, id(1), name, 0, func(int64, []byte) error { return nil })
	}
	var fault *plugins.InstanceFault
	if err := read(swapDisk); !errors.As(err, &fault) {
		t.Errorf("a guest that runs: %v", err)
	}
	r.depart(t)
	for _, name := range []string{"../../etc/passwd", startedNote, "", "."} {
		if err := read(name); !errors.As(err, &fault) {
			t.Errorf("%q: %v", name, err)
		}
	}
	own := filepath.Join(r.dir, domain.Name(id(1)), swapDisk)
	testproc.Check(t, errors.Join(os.Remove(own), os.Symlink("/etc/passwd", own)))
	if err := read(swapDisk); err == nil {
		t.Error("a link was followed")
	}
}

// TestHolesAreNotSent: a disk of 1 GiB with 1 MiB in it is sent as a few parts.
func TestHolesAreNotSent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := testproc.Try(os.CreateTemp(t.TempDir(), "")).Or(t)
	defer func() { _ = f.Close() }()
	written := map[int64]string{100 << 20: "one", 900<<20 + 5: "two"}
	for at, text := range written {
		testproc.Try(f.WriteAt([]byte(text), at)).Or(t)
	}
	testproc.Check(t, f.Truncate(1<<30))
	sent := 0
	err := sendSparse(t.Context(), f, 0, func(offset int64, data []byte) error {
		sent += len(data)
		for at, text := range written {
			if at >= offset && at < offset+int64(len(data)) && bytes.HasPrefix(data[at-offset:], []byte(text)) {
				delete(written, at)
			}
		}
		return nil
	})
	if err != nil || len(written) > 0 || sent > 4*plugins.MaxChunk {
		t.Errorf("%d bytes were sent, %d parts are missing: %v", sent, len(written), err)
	}
}
