// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestNewModule is a module as it leaves here: formatted, vetted, with the sums of what it
// requires, and installed so that an agent would start it. That its tests pass, and what an agent
// makes of it, is tested by TestRealNewDriverFromEmptyDirectory in cmd/compute-agent.
func TestNewModule(t *testing.T) {
	p := Params{Name: "acme", Replace: repository}
	above := t.TempDir()
	dir := filepath.Join(above, "a directory", p.Binary())
	write(t, dir, p)
	testproc.Check(t, os.WriteFile(filepath.Join(above, "go.work"), []byte("go 1.26.0\n"), 0o644)) // as in a checkout
	run(t, dir, "env", "-u", "GOWORK", "make", "lint", "build")
	testproc.Contains(t, run(t, dir, "go", "mod", "verify"), "all modules verified", "%v")

	root := t.TempDir()
	run(t, dir, "make", "install", "DESTDIR="+root)
	plugin := filepath.Join(root, "usr/libexec/compute-agent/plugins", p.Binary())
	var info struct{ Name string }
	if err := json.Unmarshal([]byte(run(t, root, plugin, "--info")), &info); err != nil || info.Name != p.Name {
		t.Errorf("%v, %+v", err, info)
	}
	for path := plugin; path != root; path = filepath.Dir(path) {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v, which the agent would not start", path, st.Mode(), err)
		}
	}
	verifyUnit(t, root, p)
}

// TestNamesOfAllLengths: a name and a path of any length leave the files formatted and right.
func TestNamesOfAllLengths(t *testing.T) {
	for _, p := range []Params{
		{Name: "a", Module: "a.b", Replace: repository},
		{Name: "z-9-long-name-of-a-driver-that-someone-has-thought-of", Module: "example.com/" +
			strings.Repeat("long/", 20) + "path", Replace: repository},
	} {
		dir := filepath.Join(t.TempDir(), "driver")
		write(t, dir, p)
		run(t, dir, "make", "lint")
	}
}

// verifyUnit has systemd read the agent's service with the drop-in, with all that it warns of as an
// error.
func verifyUnit(t *testing.T, root string, p Params) {
	t.Helper()
	units := filepath.Join(root, "usr/lib/systemd/system")
	service := testproc.Try(os.ReadFile(filepath.Join(repository, "systemd/units/compute-agent.service"))).Or(t)
	unit := filepath.Join(units, "compute-agent.service")
	service = bytes.Replace(service, []byte("ExecStart=/usr/bin/compute-agent "), []byte("ExecStart=/bin/true "), 1)
	testproc.Check(t, os.WriteFile(unit, service, 0o644))
	testproc.Samef(t, testproc.VerifyUnits(t, units, unit), "systemd-analyze verify")
	// It is read at all: a mistake in it is noticed.
	dropIn := filepath.Join(unit+".d", p.Binary()+".conf")
	testproc.Check(t, os.WriteFile(dropIn, []byte("[Service]\nNonsense=yes\n"), 0o644))
	testproc.Contains(t, testproc.VerifyUnits(t, units, unit), "Nonsense", "systemd does not read %s: %s", dropIn)
}

// TestReleasedModule: a release requires itself, and nothing of the machine it was made on.
func TestReleasedModule(t *testing.T) {
	files, err := Render(Params{Name: "acme", Module: "git.example.org/drivers/acme", AgentVersion: "v1.2.3"})
	testproc.Check(t, err)
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
		text := string(f.Content)
		switch f.Path {
		case "go.mod":
			if !strings.HasPrefix(text, "module git.example.org/drivers/acme\n") ||
				!strings.Contains(text, "\t"+agentModule+"/plugins v1.2.3\n") {
				t.Error(text)
			}
		case "main.go":
			testproc.Contains(t, text, `"git.example.org/drivers/acme/driver"`, "%v")
		}
		for _, bad := range []string{"<%", "%>", "<no value>", "\nreplace", "example.com/compute-driver"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s contains %q", f.Path, bad)
			}
		}
		if !strings.HasSuffix(text, "\n") || strings.HasSuffix(text, "\n\n") || strings.Contains(text, "\n\n\n") {
			t.Errorf("%s: too many or too few empty lines", f.Path)
		}
		if strings.HasSuffix(f.Path, ".go") && !strings.HasPrefix(text, "// SPDX-License-Identifier: Apache-2.0\n\n") {
			t.Errorf("%s does not say under which licence it is", f.Path)
		}
	}
	want := []string{
		".github/workflows/ci.yml", ".gitignore", "Makefile", "README.md", "dev.toml", "driver/capabilities.go",
		"driver/capabilities_test.go", "driver/config.go", "driver/config_test.go", "driver/doc.go",
		"driver/driver.go", "driver/driver_test.go", "driver/inventory.go", "driver/machine.go",
		"driver/machine_test.go", "driver/process_test.go", "driver/reshape.go",
		"driver/reshape_test.go", "driver/schema.json", "examples/acme.toml", "go.mod", "go.sum", "main.go",
		"systemd/compute-driver-acme.conf",
	}
	testproc.Same(t, cmp.Diff(want, paths))
}

func TestParamsAreChecked(t *testing.T) {
	other := t.TempDir()
	testproc.Check(t, os.WriteFile(filepath.Join(other, "go.mod"), []byte("module example.com/x\n"), 0o644))
	older := t.TempDir()
	testproc.Check(t, os.WriteFile(filepath.Join(older, "go.mod"), []byte("module "+agentModule+"\n"), 0o644))
	const long = "a234567890123456789012345678901234567890123456789012345678901234"
	for _, c := range []struct {
		p    Params
		want string // part of the error; "": no error
	}{
		{Params{Name: "a"}, ""},
		{Params{Name: "a-b-9"}, ""},
		{Params{Name: long[:63]}, ""},
		{Params{Name: long}, "at most 63"},
		{Params{Name: ""}, "lower case letter"},
		{Params{Name: "Acme"}, "lower case letter"},
		{Params{Name: "9acme"}, "lower case letter"},
		{Params{Name: "-acme"}, "lower case letter"},
		{Params{Name: "ac_me"}, "lower case letter"},
		{Params{Name: "../acme"}, "lower case letter"},
		{Params{Name: "acme\n"}, "lower case letter"},
		{Params{Name: "libvirt"}, "comes with compute-agent"},
		{Params{Name: "test"}, "the conformance suite"},
		{Params{Name: "acme", Module: "example.com/a/b"}, ""},
		{Params{Name: "acme", Module: "example.com"}, ""},
		{Params{Name: "acme", Module: "example.com/v"}, ""},
		{Params{Name: "acme", Module: "acme"}, "example.com/acme"},
		{Params{Name: "acme", Module: "Example.com/acme"}, "domain name"},
		{Params{Name: "acme", Module: "example.com/a b"}, `"a b"`},
		{Params{Name: "acme", Module: "example.com/a\"\n"}, "ASCII"},
		{Params{Name: "acme", Module: "example.com//a"}, "single /"},
		{Params{Name: "acme", Module: "example.com/../a"}, "single /"},
		{Params{Name: "acme", Module: "/example.com/a"}, "single /"},
		{Params{Name: "acme", Module: "example.com/.a"}, `".a"`},
		{Params{Name: "acme", Module: "example.com/a/v2"}, "major version"},
		{Params{Name: "acme", Module: agentModule}, "compute-agent's own"},
		{Params{Name: "acme", Module: agentModule + "/x"}, "compute-agent's own"},
		{Params{Name: "acme", Module: "example.com/" + strings.Repeat("a", 200)}, "200 characters"},
		{Params{Name: "acme", AgentVersion: "v1.2.3-rc.1"}, ""},
		{Params{Name: "acme", AgentVersion: "v0.0.0-20260102030405-0123456789ab"}, ""},
		{Params{Name: "acme", AgentVersion: "v1.2.4-0.20260102030405-0123456789ab"}, ""},
		{Params{Name: "acme", AgentVersion: "unknown"}, "--replace DIR"},
		{Params{Name: "acme", AgentVersion: "0a94cc9"}, "--replace DIR"},
		{Params{Name: "acme", AgentVersion: "v1.2.3-4-g0a94cc9"}, "--replace DIR"},
		{Params{Name: "acme", AgentVersion: "v1.2.3-dirty"}, "--replace DIR"},
		{Params{Name: "acme", AgentVersion: "unknown", Replace: repository}, ""},
		{Params{Name: "acme", Replace: other}, "but not " + agentModule},
		{Params{Name: "acme", Replace: t.TempDir()}, "there is no go.mod"},
		{Params{Name: "acme", Replace: older}, "older compute-agent"},
		// all problems are reported together
		{Params{Name: "Acme", Module: "acme", AgentVersion: "unknown"}, "domain name"},
	} {
		if c.p.AgentVersion == "" && c.p.Replace == "" {
			c.p.AgentVersion = "v1.0.0"
		}
		files, err := Render(c.p)
		var wrong *ParamsError
		switch {
		case c.want == "" && (err != nil || len(files) == 0):
			t.Errorf("%+v: %v", c.p, err)
		case c.want != "" && (!errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) || files != nil):
			t.Errorf("%+v: %v, want %q", c.p, err, c.want)
		}
	}
}

// TestUnusualCheckoutPath: a checkout may be anywhere.
func TestUnusualCheckoutPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), `a "directory" (é)`)
	testproc.Check(t, os.MkdirAll(dir, 0o755))
	mod := "module " + agentModule + " // it\n\nrequire " + agentModule + "/plugins v1.2.3 // indirect\n"
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644))
	module := t.TempDir()
	write(t, filepath.Join(module, "m"), Params{Name: "acme", Replace: dir})
	var made struct {
		Replace []struct{ New struct{ Path string } }
	}
	testproc.Check(t, json.Unmarshal([]byte(run(t, filepath.Join(module, "m"), "go", "mod", "edit", "-json")), &made))
	testproc.Equal(t, len(made.Replace), len(direct)+len(indirect)+len(helpers), "%d modules are replaced")
	for _, r := range made.Replace {
		if !strings.HasPrefix(r.New.Path, dir+"/") {
			t.Errorf("%+v, want one below %s", r, dir)
		}
	}
}

// TestCheckoutOfARelease: the modules of a commit that is released require each other at its
// version, and a new driver is complete with a checkout of it as with any other.
func TestCheckoutOfARelease(t *testing.T) {
	checkout := t.TempDir()
	for _, part := range []string{"internal/lib", "internal/pluginhost", "plugins", "providertree",
		"test/testproc", "packaging"} {
		testproc.Check(t, os.CopyFS(filepath.Join(checkout, part), os.DirFS(filepath.Join(repository, part))))
	}
	for _, file := range []string{"go.mod", "go.work"} {
		testproc.Check(t, os.WriteFile(filepath.Join(checkout, file),
			testproc.Try(os.ReadFile(filepath.Join(repository, file))).Or(t), 0o644))
	}
	later := exec.CommandContext(t.Context(), "packaging/release.sh", "modules", "v2.0.0")
	later.Dir = checkout
	if out, err := later.CombinedOutput(); err == nil || !strings.Contains(string(out), "v0 or v1") {
		t.Errorf("a version that no go.mod can have: %v\n%s", err, out)
	}
	run(t, checkout, "packaging/release.sh", "modules", "v1.2.3")
	dir := filepath.Join(t.TempDir(), "driver")
	write(t, dir, Params{Name: "acme", Replace: checkout})
	testproc.Contains(t, run(t, dir, "go", "list", "-m", agentModule+"/plugins"), "/plugins v1.2.3 => "+checkout, "%v")
	run(t, dir, "go", "list", "-deps", "-test", "./...")
}

func write(t *testing.T, dir string, p Params) {
	t.Helper()
	files := testproc.Try(Render(p)).Or(t)
	testproc.Check(t, Write(dir, files))
}

var some = []File{{"a", []byte("a\n")}, {"b/c/d", []byte("d\n")}, {"b/e", []byte("e\n")}}

// listing is all that is below a directory: files with their content, directories with a slash.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	testproc.Check(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		switch {
		case err != nil || rel == ".":
			return err
		case d.IsDir():
			out[rel+"/"] = ""
			return nil
		case d.Type() != 0:
			out[rel] = d.Type().String()
			return nil
		}
		content, err := os.ReadFile(name)
		out[rel] = string(content)
		return err
	}))
	return out
}

func TestWriteAddsToADirectory(t *testing.T) {
	above := t.TempDir()
	for _, prepare := range []struct {
		name string
		do   func(dir string) error
		more map[string]string
	}{
		{"new", func(string) error { return nil }, nil},
		{"deep/below/new", func(string) error { return nil }, nil},
		{"empty", func(dir string) error { return os.Mkdir(dir, 0o700) }, nil},
		{"clone", func(dir string) error { return os.MkdirAll(filepath.Join(dir, ".git"), 0o755) },
			map[string]string{".git/": ""}},
		{"directory", func(dir string) error { return os.MkdirAll(filepath.Join(dir, "b"), 0o755) }, nil},
	} {
		dir := filepath.Join(above, prepare.name)
		testproc.Check(t, prepare.do(dir))
		testproc.NoErrorf(t, Write(dir, some), "%s", prepare.name)
		want := map[string]string{"a": "a\n", "b/": "", "b/c/": "", "b/c/d": "d\n", "b/e": "e\n"}
		for name, content := range prepare.more {
			want[name] = content
		}
		testproc.Samef(t, cmp.Diff(want, listing(t, dir)), "%s", prepare.name)
	}
	for name := range listing(t, above) {
		if strings.HasPrefix(name, ".") {
			t.Errorf("%s is left", name)
		}
	}
}

func TestWriteOverwritesNothing(t *testing.T) {
	outside := t.TempDir()
	for name, prepare := range map[string]func(dir string) error{
		"a file":              func(dir string) error { return os.WriteFile(filepath.Join(dir, "a"), nil, 0o644) },
		"a directory":         func(dir string) error { return os.Mkdir(filepath.Join(dir, "a"), 0o755) },
		"a dangling link":     func(dir string) error { return os.Symlink("/nonexistent", filepath.Join(dir, "a")) },
		"a file deep down":    func(dir string) error { return os.MkdirAll(filepath.Join(dir, "b/c/d"), 0o755) },
		"a file for a parent": func(dir string) error { return os.WriteFile(filepath.Join(dir, "b"), nil, 0o644) },
		"a link to outside":   func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "b")) },
		"a directory sealed": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "b"), 0o755), os.Symlink("x", filepath.Join(dir, "b/c")))
		},
		"the last of its path": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "b"), 0o755),
				os.WriteFile(filepath.Join(dir, "b/e"), nil, 0o644))
		},
	} {
		dir := t.TempDir()
		testproc.Check(t, prepare(dir))
		before := listing(t, dir)
		if err := Write(dir, some); err == nil {
			t.Errorf("%s: no error", name)
		}
		testproc.Samef(t, cmp.Diff(before, listing(t, dir)), "%s", name)
	}
	if left := listing(t, outside); len(left) > 0 {
		t.Errorf("outside is %v", left)
	}
	file := filepath.Join(outside, "file")
	testproc.Check(t, os.WriteFile(file, []byte("mine"), 0o644))
	testproc.ErrorHas(t, Write(file, some), "no directory", "a file in place of the directory: %v")
}

func TestWriteNamesAllThatIsInTheWay(t *testing.T) {
	dir := t.TempDir()
	testproc.Check(t, Write(dir, some[:2]))
	var there *ExistsError
	if err := Write(dir, some); !errors.As(err, &there) ||
		!cmp.Equal(there.Files, []string{"a", "b/c/d"}) || there.Dir != dir {
		t.Errorf("got %v", err)
	}
}

// TestWriteIsAllOrNothing: a file that cannot be written takes those before it along, and a new
// directory never appears.
func TestWriteIsAllOrNothing(t *testing.T) {
	// longer than a file name may be
	broken := append(some[:len(some):len(some)], File{"b/" + strings.Repeat("x", 300), nil})
	above := t.TempDir()
	for _, dir := range []string{above, filepath.Join(above, "new")} {
		if err := Write(dir, broken); err == nil {
			t.Fatal("no error")
		}
		if left := listing(t, above); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	}
}
