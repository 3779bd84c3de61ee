// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/providertree"
)

func (p *printer) pluginHead(r host.Description) {
	name := r.Name
	if name == "" {
		name = "(it does not say who it is)"
	}
	p.line("%s  %s", strings.TrimRight(name+" "+r.Version, " "), r.Path)
	can := strings.Join(r.Capabilities, ", ")
	if can == "" {
		can = "nothing beyond what all must"
	}
	p.line("  SDK  %s", r.SDK)
	p.line("  can  %s", can)
}

// untabbed has four spaces for a tab.
func untabbed(s string) string { return strings.ReplaceAll(s, "\t", "    ") }

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// PluginInfo prints who a plugin is and what may be configured.
func PluginInfo(w io.Writer, r host.Description, sha256 string, schema []byte) error {
	p := &printer{w: w}
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
		p.line("It takes no configuration.")
		return p.err
	case json.Unmarshal(schema, &s) != nil:
		p.line("The schema of its configuration is no JSON Schema: compute-agent plugin test says more.")
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

// wrapText breaks a text into lines of at most so many characters; a longer word has a line of its own.
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

// PluginPass prints what one pass of a rehearsal changed, and the tree after the first one.
func PluginPass(w io.Writer, pass host.Pass, n int) error {
	p := &printer{w: w}
	p.line("pass %d", n)
	if pass.Health != "" {
		p.line("  the driver reports a problem of its own: %s", oneLine(pass.Health))
	}
	for _, w := range pass.Warnings {
		p.line("  the driver warns of %s: %s", oneLine(w.Name), oneLine(w.Text))
	}
	if pass.Watch != "" {
		p.line("  changes are not noticed by themselves: %s", oneLine(pass.Watch))
	}
	for _, name := range pass.Removed {
		p.line("  node %s: the driver does not list it any more; in Placement it stays as it is (compute-agent node remove)", name)
	}
	for _, node := range pass.Nodes {
		if node.Node != "" {
			p.line("  node %s (%s)", node.Node, node.UUID)
		}
		if node.Reshape != "" {
			p.line("    %s", oneLine(node.Reshape))
			p.line("    called again with the allocations of no consumers")
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
		if n == 1 && node.Tree != nil {
			p.line("")
			p.tree(node.Tree)
		}
	}
	return p.err
}

// PluginLog prints one line of a driver's log, which comes as JSON, for its author: level, message,
// fields, and below them the stack of a panic. What is below the level info is left out, as an
// agent leaves it out, and what the host logs.
func PluginLog(w io.Writer, line []byte) error {
	p := &printer{w: w}
	fields := map[string]any{}
	if json.Unmarshal(line, &fields) != nil { // as it is, then
		fields = map[string]any{"message": strings.TrimSpace(string(line)), "output": "raw"}
	}
	level, _ := fields["level"].(string)
	message, _ := fields["message"].(string)
	stack, _ := fields["stack"].(string)
	switch {
	case level == "trace" || level == "debug":
		return nil
	case fields["pid"] == nil && fields["output"] == nil && fields["dropped"] == nil: // of the host
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

// tree prints a tree that is in no Placement.
func (p *printer) tree(tree *providertree.Tree) {
	children := map[string][]control.Provider{}
	for rp := range tree.All() {
		view := control.Provider{UUID: rp.UUID, Name: rp.Name, Parent: rp.ParentUUID, Generation: rp.Generation, Traits: rp.Traits, Aggregates: rp.Aggregates}
		for _, class := range slices.Sorted(maps.Keys(rp.Inventories)) {
			i := rp.Inventories[class]
			none := int64(0)
			view.Inventories = append(view.Inventories, control.Inventory{Class: class, Inventory: i, Capacity: i.Capacity(), Used: &none})
		}
		children[rp.ParentUUID] = append(children[rp.ParentUUID], view)
	}
	for _, root := range children[""] {
		p.provider(root, children, "  ", "  ", TreeOptions{})
	}
}

// PluginEntry is one driver that is configured or installed.
type PluginEntry struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// State is "enabled", "disabled" or "not configured".
	State string `json:"state"`
	// Problem is what keeps it from being started, or "".
	Problem string `json:"problem,omitempty"`
}

// PluginList prints the drivers that are configured or installed.
func PluginList(w io.Writer, dirs []string, entries []PluginEntry) error {
	p := &printer{w: w}
	if len(entries) == 0 {
		p.line("No driver is configured, and none is in %s.", strings.Join(dirs, " or "))
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
