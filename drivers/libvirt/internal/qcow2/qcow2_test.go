// SPDX-License-Identifier: Apache-2.0

package qcow2_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/qcow2"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// written is a layer as bytes.
func written(t testing.TB, size uint64, backing, format string) []byte {
	t.Helper()
	f := testproc.Try(os.Create(filepath.Join(t.TempDir(), "disk"))).Or(t)
	testproc.Check(t, errors.Join(qcow2.WriteOverlay(f, size, backing, format), f.Close()))
	return testproc.Try(os.ReadFile(f.Name())).Or(t)
}

// standing is a layer made an image that stands alone, with changes.
func standing(t testing.TB, change func([]byte)) []byte {
	text := written(t, 10<<30, "/srv/image", "raw")
	copy(text[8:20], make([]byte, 12))
	if change != nil {
		change(text)
	}
	return text
}

func TestSize(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	be := binary.BigEndian
	for _, c := range []struct {
		name string
		text []byte
		size uint64
		err  error // nil: some
		bad  bool
	}{
		{name: "an image", text: standing(t, nil), size: 10 << 30},
		{name: "an old image", text: standing(t,
			func(b []byte) { be.PutUint32(b[4:], 2); be.PutUint64(b[72:], math.MaxUint64) })[:80], size: 10 << 30},
		{name: "compressed in another way",
			text: standing(t, func(b []byte) { be.PutUint64(b[72:], 1<<3) }), size: 10 << 30},
		{name: "nothing", bad: true, err: qcow2.ErrFormat},
		{name: "text", text: []byte(strings.Repeat("hello", 100)), bad: true, err: qcow2.ErrFormat},
		{name: "a layer", text: written(t, 1<<20, "/srv/image", "raw"), bad: true, err: qcow2.ErrBackingFile},
		{name: "data elsewhere", text: standing(t, func(b []byte) { be.PutUint64(b[72:], 1<<2) }), bad: true,
			err: qcow2.ErrBackingFile},
		{name: "damaged", text: standing(t, func(b []byte) { be.PutUint64(b[72:], 1<<1) }), bad: true},
		{name: "of the future", text: standing(t, func(b []byte) { be.PutUint64(b[72:], 1<<40) }), bad: true},
		{name: "of another version", text: standing(t, func(b []byte) { be.PutUint32(b[4:], 4) }), bad: true},
		{name: "encrypted", text: standing(t, func(b []byte) { be.PutUint32(b[32:], 2) }), bad: true},
		{name: "endless", text: standing(t, func(b []byte) { be.PutUint64(b[24:], math.MaxUint64) }), bad: true},
		{name: "truncated", text: standing(t, nil)[:100], bad: true},
		{name: "truncated early", text: standing(t, nil)[:5], bad: true},
	} {
		size, err := qcow2.Size(bytes.NewReader(c.text))
		if size != c.size || (err != nil) != c.bad || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %v", c.name, size, err)
		}
	}
}

func TestInvalidOverlays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := testproc.Try(os.Create(filepath.Join(t.TempDir(), "disk"))).Or(t)
	defer func() { _ = f.Close() }()
	for _, c := range []struct {
		size    uint64
		backing string
	}{{0, "/image"}, {511, "/image"}, {65 << 40, "/image"}, {1 << 20, ""}, {1 << 20, "image"}, {1 << 20, "json:{}"},
		{1 << 20, "/" + strings.Repeat("x", 1023)}} {
		if err := qcow2.WriteOverlay(f, c.size, c.backing, "raw"); err == nil {
			t.Errorf("%+v was written", c)
		}
	}
}

// TestLargeLayer: the largest one has a table of its own size.
func TestLargeLayer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	text := written(t, 64<<40, "/image", "qcow2")
	if want := 3*65536 + 1<<20; len(text) != want {
		t.Errorf("%d bytes, want %d", len(text), want)
	}
	for i := range 3 + 16 + 1 { // reference counts of all clusters that there are, and no more
		if got, want := binary.BigEndian.Uint16(text[2*65536+2*i:]), uint16(1); (got == want) != (i < 19) {
			t.Errorf("cluster %d is used %d times", i, got)
		}
	}
}

// TestRebase: a layer refers to another image, if it is one that the driver wrote.
func TestRebase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const longest = 1023 // bytes of a path
	f := testproc.Try(os.CreateTemp(t.TempDir(), "")).Or(t)
	defer func() { _ = f.Close() }()
	testproc.Check(t, qcow2.WriteOverlay(f, 1<<30, "/images/debian", "raw"))
	for _, path := range []string{"/somewhere/else/debian", "/a", "/" + strings.Repeat("x", longest-1)} {
		testproc.Try(qcow2.Rebase(f, path)).Or(t)
		if got, err := qcow2.Backing(f); err != nil || got != path {
			t.Errorf("got %q, %v", got, err)
		}
	}
	for _, path := range []string{"", "relative", "/" + strings.Repeat("x", longest)} {
		if _, err := qcow2.Rebase(f, path); err == nil {
			t.Errorf("%.20q was taken", path)
		}
	}
	for name, change := range map[string]struct {
		at   int64
		with string
	}{"an external data file": {79, "\x04"}, "an encryption": {35, "\x01"}, "an old version": {7, "\x02"},
		"another format": {0, "RAW!"}, "names far away": {8, "\x01"}} {
		testproc.Check(t, qcow2.WriteOverlay(f, 1<<30, "/images/debian", "raw"))
		testproc.Try(f.WriteAt([]byte(change.with), change.at)).Or(t)
		if got, err := qcow2.Backing(f); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzSize(f *testing.F) {
	f.Add(standing(f, nil)[:200])
	f.Add([]byte("QFI\xfb"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if size, err := qcow2.Size(bytes.NewReader(text)); err != nil && size != 0 || size > math.MaxInt64 {
			t.Errorf("%d, %v", size, err)
		}
	})
}
