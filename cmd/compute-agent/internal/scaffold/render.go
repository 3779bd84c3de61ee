// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed templates
var templates embed.FS

// requires are the modules that the packages for drivers need, "PATH VERSION" a line; sums is the
// go.sum with them.
var (
	//go:embed requires.txt
	requires string
	//go:embed sums.txt
	sums string
)

// File is one file of a module.
type File struct {
	// Path below the module's directory, with slashes.
	Path string
	// Content is text that ends with a newline.
	Content []byte
}

// names are the files whose names are others in the module.
func names(p Params) map[string]string {
	return map[string]string{
		"gitignore":            ".gitignore",
		"ci/github.yml":        ".github/workflows/ci.yml",
		"examples/conf.toml":   "examples/" + p.Name + ".toml",
		"systemd/drop-in.conf": "systemd/" + p.Binary() + ".conf",
	}
}

// Render makes the files of a module, sorted by path. It writes nothing. Errors: a [*ParamsError].
func Render(p Params) ([]File, error) {
	p, err := p.complete()
	if err != nil {
		return nil, err
	}
	values := map[string]any{
		"Name": p.Name, "Module": p.Module, "Binary": p.Binary(),
		"SlotClass":    "CUSTOM_" + strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_")) + "_SLOT",
		"AgentVersion": p.AgentVersion, "Replace": p.Replace, "Replaced": replaced(p.Replace),
		"Direct": paths(direct), "Indirect": paths(indirect), "Requires": strings.FieldsFunc(requires,
			func(r rune) bool { return r == '\n' }),
	}
	renamed := names(p)
	files := []File{{Path: "go.sum", Content: []byte(sums)}}
	err = fs.WalkDir(templates, "templates", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(templates, name)
		if err != nil {
			return err
		}
		out := strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".tmpl")
		if other, found := renamed[out]; found {
			out = other
		}
		t, err := template.New(path.Base(name)).Delims("<%", "%>").Option("missingkey=error").Parse(string(text))
		if err != nil {
			return fmt.Errorf("reading the template %s: %w", name, err)
		}
		var b bytes.Buffer
		if err := t.Execute(&b, values); err != nil {
			return fmt.Errorf("filling in the template %s: %w", name, err)
		}
		files = append(files, File{Path: out, Content: b.Bytes()})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// paths are the paths of modules of compute-agent's repository.
func paths(modules []string) []string {
	var out []string
	for _, m := range modules {
		out = append(out, path.Join(agentModule, m))
	}
	return out
}

// replaced are these modules, and what their own tests need, with their directories in a checkout,
// if there is one.
func replaced(checkout string) []string {
	var out []string
	for _, m := range slices.Sorted(slices.Values(slices.Concat(direct, indirect, helpers))) {
		if checkout != "" {
			out = append(out, path.Join(agentModule, m)+" => "+quoted(path.Join(checkout, m)))
		}
	}
	return out
}

var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9_.~+@-]+)+$`)

// quoted is a file path as go.mod wants it: in quotes if there is anything unusual in it.
func quoted(file string) string {
	if file == "" || plainPath.MatchString(file) {
		return file
	}
	return strconv.Quote(file)
}
