// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPropertiesOfImages: the properties of an image are those in the file beside it; those that
// came with the request count.
func TestPropertiesOfImages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		in := func(name string) string { return filepath.Join(r.images, name) }
		r.write(in("debian"), "hello")
		r.write(in("debian"+PropertiesSuffix),
			`{"hw_watchdog_action": "reset", "hw_video_model": "vga", "hw_boot_menu": true, "hw_serial_port_count": `+
				`2, "os_distro": "debian"}`)
		spec := request(1)
		spec.Image = "debian"
		spec.ImageProperties = map[string]string{"hw_watchdog_action": "pause"}
		r.mustSpawn(spec)
		text := r.domains[id(1)].XML
		for _, want := range []string{`action="pause"`, `<model type="vga">`, `<bootmenu enable="yes">`} {
			testproc.Contains(t, text, want, "no %s in %s", want)
		}
		testproc.Equal(t, strings.Count(text, "<serial "), 2, "%d serial ports")
		if spec.ImageProperties["hw_video_model"] != "" {
			t.Error("the request was changed")
		}

		spec = request(2)
		spec.Image = "debian"
		r.mustSpawn(spec) // as the file says
		testproc.Contains(t, r.domains[id(2)].XML, `action="reset"`, "%v")
		spec = request(3) // without an image no file counts
		r.mustSpawn(spec)
		if text := r.domains[id(3)].XML; strings.Contains(text, "watchdog") {
			t.Error(text)
		}
	})
}

// TestBrokenProperties: what cannot be read is a fault, and nothing is begun.
func TestBrokenProperties(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		in := func(name string) string { return filepath.Join(r.images, name) }
		spec := request(1)
		spec.Image = "debian"
		file := in("debian" + PropertiesSuffix)
		r.write(in("debian"), "hello")
		refused := func(name string) {
			t.Helper()
			checked := r.check(spec)
			_, err := r.spawn(spec)
			if !isFault(checked) || checked.Error() != err.Error() {
				t.Errorf("%s: the check says %v, and the spawn %v", name, checked, err)
			}
			if !isFault(err) ||
				strings.Contains(err.Error(), "is not supported here") == strings.Contains(err.Error(),
					"cannot be read") {
				t.Errorf("%s: %v, want a fault", name, err)
			}
			if len(r.writes) > 0 || len(r.left()) > 0 {
				t.Errorf("%s: %v, %v", name, r.writes, r.left())
			}
			testproc.Check(t, os.Remove(file))
		}
		many := make([]string, maxProperties+1)
		for i := range many {
			many[i] = fmt.Sprintf(`"p%d":""`, i)
		}
		for name, text := range map[string]string{
			"nothing":             "",
			"no JSON":             `hw_boot_menu=true`,
			"no object":           `["hw_boot_menu"]`,
			"an object in it":     `{"hw_boot_menu": {}}`,
			"null":                `{"hw_boot_menu": null}`,
			"no name":             `{"": "x"}`,
			"a long name":         `{"` + strings.Repeat("x", maxPropertyName+1) + `": "x"}`,
			"a long value":        `{"x": "` + strings.Repeat("x", maxPropertyValue+1) + `"}`,
			"too many":            "{" + strings.Join(many, ",") + "}",
			"a large file":        `{"x": "x"}` + strings.Repeat(" ", maxPropertiesFile),
			"what is unknown":     `{"hw_unheard_of": "x"}`,
			"what no server has":  `{"hw_scsi_model": "buslogic"}`,
			"what comes after":    `{"x": "x"} {}`,
			"hosts that it wants": `{"trait:CUSTOM_A": "required"}`,
		} {
			r.write(file, text)
			refused(name)
		}
		testproc.Check(t, os.Mkdir(file, 0o700))
		refused("a directory")
		testproc.Check(t, syscall.Mkfifo(file, 0o600))
		refused("a pipe")
		r.write(filepath.Join(filepath.Dir(r.images), "outside"), "{}")
		testproc.Check(t, os.Symlink("../outside", file))
		refused("a link that leads out")
		long := strings.Repeat("x", 250)
		r.write(in(long), "hello")
		spec.Image = long // no file can be called by it
		r.mustSpawn(spec)
	})
}

// FuzzProperties: whatever the file says, there are properties within bounds, or a reason.
func FuzzProperties(f *testing.F) {
	for _, text := range []string{`{}`, `{"a": "b", "c": 1, "d": true}`, `{"a": 1e999}`,
		`{"a": "\ud800"}`, "[", `{"a": null}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := ParseProperties(text)
		if (got == nil) == (err == nil) {
			t.Fatal(errors.New("neither properties nor a reason"), got, err)
		}
		for name, value := range got {
			if name == "" || len(name) > maxPropertyName || len(value) > maxPropertyValue {
				t.Errorf("%q=%q", name, value)
			}
		}
		if len(got) > maxProperties {
			t.Errorf("%d properties", len(got))
		}
	})
}
