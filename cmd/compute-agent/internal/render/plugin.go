// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/providertree"
)

// outside is what a driver that is tried has not, beside the sandbox.
const outside = " (but not as the agent's user, and not in its unit)"

func (p *printer) pluginHead(r trial.Description) {
	p.line("%s  %s", strings.TrimRight(cmp.Or(r.Name, "(no name)")+" "+r.Version, " "), r.Path)
	p.line("  SDK  %s", r.SDK)
	p.line("  can  %s", cmp.Or(strings.Join(r.Capabilities, ", "), "no optional capabilities"))
	switch {
	case r.Sandbox == "":
	case r.Unconfined():
		p.line("  in   NO SANDBOX, unlike the agent's drivers")
	case len(r.SandboxLacks) > 0:
		p.line("  in   an incomplete sandbox: %s%s", r.Sandbox, outside)
	default:
		p.line("  in   the agent's sandbox: %s%s", r.Sandbox, outside)
	}
}

// untabbed replaces tabs with four spaces.
func untabbed(s string) string { return strings.ReplaceAll(s, "\t", "    ") }

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// PluginInfo prints a plugin's description and configuration keys.
func PluginInfo(w io.Writer, r trial.Description, sha256 string, schema []byte) error {
	p := newPrinter(w)
	p.pluginHead(r)
	p.line("  sha256  %s", sha256)
	var s struct {
		Properties map[string]struct {
			Description string `json:"description"`
			Type        any    `json:"type"`
			Default     any    `json:"default"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	switch {
	case len(schema) == 0:
		p.line("The driver has no configuration keys.")
		return p.err
	case json.Unmarshal(schema, &s) != nil:
		p.line("The driver's configuration schema is not a valid JSON Schema; see compute-agent plugin test.")
		return p.err
	}
	p.line("Keys of [drivers.%s.config]:", r.Name)
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		var facts []string
		if t, ok := s.Properties[key].Type.(string); ok {
			facts = append(facts, t)
		}
		if slices.Contains(s.Required, key) {
			facts = append(facts, "required")
		}
		if def, err := json.Marshal(s.Properties[key].Default); err == nil && s.Properties[key].Default != nil {
			facts = append(facts, "default "+string(def))
		}
		kind := ""
		if len(facts) > 0 {
			kind = " (" + strings.Join(facts, ", ") + ")"
		}
		p.line("  %s", key+kind)
		for _, row := range wrapText(s.Properties[key].Description, 96) {
			p.line("      %s", row)
		}
	}
	return p.err
}

// wrapText breaks a text into lines of at most width characters, if no word is longer.
func wrapText(text string, width int) []string {
	var out []string
	for _, word := range strings.Fields(text) {
		if n := len(out); n > 0 && len([]rune(out[n-1]))+1+len([]rune(word)) <= width {
			out[n-1] += " " + word
		} else {
			out = append(out, word)
		}
	}
	return out
}

// PluginRun prints the passes of `plugin run`.
type PluginRun struct {
	passes int
	warned []string
}

// Pass prints what a pass changed, the tree after the first pass, and the warnings that no pass
// before had.
func (r *PluginRun) Pass(w io.Writer, pass trial.Pass, warnings []string) error {
	r.passes++
	p := newPrinter(w)
	p.line("pass %d", r.passes)
	if pass.Health != "" {
		p.line("  the driver reports a problem: %s", oneLine(pass.Health))
	}
	for _, w := range pass.Warnings {
		p.line("  the driver's warning %s: %s", oneLine(w.Name), oneLine(w.Text))
	}
	if pass.Watch != "" {
		p.line("  the driver does not report changes: %s", oneLine(pass.Watch))
	}
	for _, name := range pass.Removed {
		p.line("  node %s: the driver no longer lists it; Placement would keep it until `compute-agent node remove`",
			name)
	}
	for _, node := range pass.Nodes {
		if node.Node != "" {
			p.line("  node %s (%s)", node.Node, node.UUID)
		}
		if node.Reshape != "" {
			p.line("    %s", oneLine(node.Reshape))
			p.line("    called again, with no allocations")
		}
		if node.Problem != "" {
			p.line("    %s", oneLine(node.Problem))
			continue
		}
		for _, row := range node.Changes {
			p.line("    %s", row)
		}
		if len(node.Changes) == 0 {
			p.line("    nothing changed")
		}
		if r.passes == 1 && node.Tree != nil {
			p.line("")
			p.tree(node.Tree, node.ProductNames)
		}
	}
	added := slices.DeleteFunc(warnings, func(text string) bool { return slices.Contains(r.warned, text) })
	r.warned = append(r.warned, added...)
	p.notes("  ", added)
	return p.err
}

// PluginLog prints a JSON line of a driver's log: level, message, fields, and the stack of a panic.
// It skips levels below info, and lines of the plugin host.
func PluginLog(w io.Writer, line []byte) error {
	p := newPrinter(w)
	fields := map[string]any{}
	if json.Unmarshal(line, &fields) != nil { // not JSON
		fields = map[string]any{"message": strings.TrimSpace(string(line)), "output": "raw"}
	}
	level, _ := fields["level"].(string)
	message, _ := fields["message"].(string)
	stack, _ := fields["stack"].(string)
	switch {
	case level == "trace" || level == "debug":
		return nil
	case fields["pid"] == nil && fields["output"] == nil && fields["dropped"] == nil: // from the host
		return nil
	case fields["output"] == "raw":
		level = "output"
	}
	for _, known := range []string{"level", "message", "stack", "output", "driver", "pid", "time"} {
		delete(fields, known)
	}
	var rest strings.Builder
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		fmt.Fprintf(&rest, " %s=%v", key, fields[key])
	}
	p.line("log: %-6s %s", level, oneLine(message+rest.String()))
	for row := range strings.Lines(stack) {
		p.line("        %s", untabbed(strings.TrimRight(row, "\n")))
	}
	return p.err
}

// tree prints a tree that is not in Placement.
func (p *printer) tree(tree *providertree.Tree, productNames map[string]string) {
	children := map[string][]control.Provider{}
	for rp := range tree.All() {
		view := control.Provider{
			UUID: rp.UUID, Name: rp.Name, Parent: rp.ParentUUID, Generation: rp.Generation, Traits: rp.Traits,
			Aggregates: rp.Aggregates, ProductName: productNames[rp.Name],
		}
		for _, class := range slices.Sorted(maps.Keys(rp.Inventories)) {
			i := rp.Inventories[class]
			none := int64(0)
			view.Inventories = append(view.Inventories,
				control.Inventory{Class: class, Inventory: i, Capacity: i.Capacity(), Used: &none})
		}
		children[rp.ParentUUID] = append(children[rp.ParentUUID], view)
	}
	for _, root := range children[""] {
		p.provider(root, children, "  ", "  ", TreeOptions{})
	}
}

// PluginList prints the drivers that are configured or installed.
func PluginList(w io.Writer, dirs []string, entries []pluginhost.Entry) error {
	p := newPrinter(w)
	if len(entries) == 0 {
		p.line("No driver is configured or installed in %s.", strings.Join(dirs, " or "))
		return p.err
	}
	name, state := 0, 0
	for _, e := range entries {
		name, state = max(name, len(e.Name)), max(state, len(e.State))
	}
	for _, e := range entries {
		p.line("%s", strings.TrimRight(fmt.Sprintf("%-*s  %-*s  %s", name, e.Name, state, e.State, e.Path), " "))
		if e.Problem != "" {
			p.line("%*s  %s", name, "", e.Problem)
		}
	}
	return p.err
}

// PluginNew prints which files of a new driver were written to a directory, and what comes next.
// release is the one of compute-agent that the module downloads, "" if it uses a checkout.
func PluginNew(w io.Writer, name, dir string, files []string, release string) error {
	p := newPrinter(w)
	p.line("Created driver %s in %s:", name, dir)
	for _, file := range files {
		p.line("  %s", file)
	}
	p.line("\nNext:\n  cd %s", dir)
	if release != "" {
		p.line("  go mod tidy      # downloads compute-agent %s", release)
	}
	p.line("  make test        # passes without changes")
	p.line("  make install     # as root: installs it where the agent looks for drivers")
	p.line("README.md explains what to change.")
	return p.err
}
