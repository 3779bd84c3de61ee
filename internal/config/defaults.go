// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Defaults writes a complete configuration file: every key with its meaning,
// what may be written, its variable, when a change takes effect, and its
// default. Reading the file gives the defaults again.
func Defaults(w io.Writer) error {
	b := bufio.NewWriter(w)
	p := printer{b}
	p.comment("Configuration of compute-agent.\n\nEvery value below is the default, so that any line may be removed. " +
		"Files\nconf.d/*.toml next to this one are applied after it, in the order of their names.\nEvery key " +
		"has a variable, which wins over the files.\n`compute-agent config check` validates the configuration, " +
		"`systemctl reload\ncompute-agent` applies what can be applied without a restart.")
	for _, s := range new(Config).sections() {
		p.section(s.Name, s.Doc+"\nRead by "+readBy(s.Readers)+".")
		for _, k := range s.keys {
			k.reset()
			p.key(dotted(s.Name, k.Name), k.Doc, k.allowed(), k.Live, k.Name+" = "+k.format())
		}
	}
	p.line("")
	p.comment(driverSection().Doc + "\nThe lines below show the keys; remove one # from each line to use it.")
	p.comment("\n[drivers.libvirt]")
	in := ""
	for _, k := range newDriver().keys() {
		if k.Name == "config" {
			p.comment("\n[drivers.libvirt.config]")
			p.prefixed("# # ", k.Doc)
			continue
		}
		table, name, below := strings.Cut(k.Name, ".")
		if !below {
			name = k.Name
		} else if table != in {
			in = table
			p.comment("\n[drivers.libvirt." + table + "]")
		}
		p.line("#")
		p.prefixed("# # ", k.Doc)
		p.prefixed("# # ", "Allowed: "+k.allowed()+". "+EnvName("drivers.libvirt."+k.Name)+".")
		p.comment(name + " = " + k.format())
	}
	return b.Flush()
}

// printer writes lines; the writer below it keeps the first error for Flush.
type printer struct{ w *bufio.Writer }

func (p printer) line(s string) { _, _ = fmt.Fprintln(p.w, s) }

func (p printer) prefixed(prefix, s string) {
	for l := range strings.SplitSeq(s, "\n") {
		p.line(strings.TrimRight(prefix+l, " "))
	}
}

func (p printer) comment(s string) { p.prefixed("# ", s) }

func (p printer) section(name, doc string) {
	p.line("")
	p.comment(doc)
	p.line("[" + name + "]")
}

func (p printer) key(path, doc, allowed string, isLive bool, assignment string) {
	when := "Changes need a restart."
	if isLive {
		when = "Changes are applied by a reload."
	}
	p.line("")
	p.comment(doc)
	p.comment("Allowed: " + allowed + ". " + when)
	p.comment(EnvName(path))
	p.line(assignment)
}
