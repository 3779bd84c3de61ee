// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// ConfigCheck prints a valid configuration: what was read, the settings and where each is set, what
// could not be checked, and the warnings of drivers.
func ConfigCheck(w io.Writer, c commands.ConfigCheck) error {
	var b strings.Builder
	read := "no file (there is no " + c.Default + ")"
	if len(c.Files) > 0 {
		read = strings.Join(c.Files, ", ")
	}
	if c.AgentDescription != "" {
		read += "; this is " + c.AgentDescription
	}
	fmt.Fprintf(&b, "The configuration is valid. Read: %s.\n", read)
	for _, e := range c.Settings {
		fmt.Fprintf(&b, "  %s = %s    (%s)\n", e.Key, e.Value, e.Source)
	}
	for _, key := range c.Unchecked {
		fmt.Fprintf(&b, "Not checked: %s names a credential, which systemd passes only to the unit.\n", key)
	}
	for _, d := range c.Drivers {
		if d.Unchecked != "" {
			fmt.Fprintf(&b, "Not checked: the keys of driver %s: %s.\n", d.Driver, strings.TrimSuffix(d.Unchecked, "."))
		}
		for _, warning := range d.Warnings {
			fmt.Fprintf(&b, "Warning of driver %s on this machine (%s): %s\n", d.Driver, warning.Name, warning.Text)
		}
		if d.NodesUnknown != "" && len(c.Drivers) > 1 {
			fmt.Fprintf(&b, "Not checked: whether another driver has the nodes of driver %s, "+
				"which cannot list them: %s.\n", d.Driver, strings.TrimSuffix(d.NodesUnknown, "."))
		}
		if d.Unseen != "" {
			fmt.Fprintf(&b, "Not checked: whether the configuration of driver %s fits this machine: %s\n",
				d.Driver, d.Unseen)
		}
	}
	providerFiles(&b, c.Providers)
	_, err := io.WriteString(w, b.String())
	return err
}

// providerFiles lists what is added to each provider, and where; nothing if there are no files.
func providerFiles(b *strings.Builder, p commands.ProviderFiles) {
	if len(p.Files)+len(p.Warnings) == 0 {
		return
	}
	files := "no file in " + p.Directory
	if len(p.Files) > 0 {
		files = strings.Join(p.Files, ", ")
	}
	fmt.Fprintf(b, "provider.yaml is valid. Read: %s.\n", files)
	for _, e := range p.Entries {
		fmt.Fprintf(b, "  %s: %s, %s    (%s)\n", e.ID(), textutil.Count(len(e.Inventories), "inventory"),
			textutil.Count(len(e.Traits), "trait"), e.Place)
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(b, "  warning: %s\n", warning)
	}
}
