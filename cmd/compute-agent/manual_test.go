// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// manualDir is where `make manual` has the files written.
var manualDir = flag.String("manual", "",
	"write the manual pages and the shell completion to `DIRECTORY`, with the time of SOURCE_DATE_EPOCH")

// TestManual: there are manual pages of all commands and of the configuration, and the shell
// completion. No other package depends on the generator.
func TestManual(t *testing.T) {
	dir, epoch := *manualDir, int64(0)
	if dir == "" {
		testproc.Parallel(t, testproc.Light)
		dir = t.TempDir()
	} else {
		var err error
		if epoch, err = strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err != nil {
			t.Fatal("SOURCE_DATE_EPOCH is the time of the commit, in seconds since 1970:", err)
		}
	}
	check(t, writeManual(dir, time.Unix(epoch, 0).UTC()))
	for _, c := range cli.AllCommands(newRoot()) {
		if _, err := os.Stat(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")); err != nil {
			t.Error(err)
		}
	}
}

func writeManual(dir string, date time.Time) error {
	root := newRoot()
	root.DisableAutoGenTag = true
	for _, c := range cli.AllCommands(root) {
		if f := c.Flags().Lookup(cli.WatchFlag); f != nil {
			f.DefValue = f.NoOptDefVal // the generator shows the default in place of the value that can be left out
		}
	}
	header := doc.GenManHeader{Section: "1", Date: &date,
		Source: "compute-agent " + version.Number(), Manual: "compute-agent"}
	if err := doc.GenManTree(root, &header, dir); err != nil {
		return err
	}
	if err := tidyPages(dir, date); err != nil {
		return err
	}
	page, err := configPage(date)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "compute-agent.toml.5"), page, 0o644); err != nil {
		return err
	}
	return writeCompletion(root, dir)
}

// option is how the generator writes an option: a paragraph, and a tab before its description,
// which fills lines in groff but not in mandoc.
var option = regexp.MustCompile(`(?m)^(?:\.PP\n)?(\\fB-.*)\n\t`)

// tidyPages gives the generated pages a day, which has a form that all readers of manual pages
// know, and tagged paragraphs for options.
func tidyPages(dir string, date time.Time) error {
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		content = bytes.Replace(content, []byte(date.Format(`"Jan 2006"`)), []byte(date.Format(`"2006-01-02"`)), 1)
		content = option.ReplaceAll(content, []byte(".TP\n$1\n"))
		if err := os.WriteFile(page, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// configPage is compute-agent.toml(5): what `compute-agent config defaults` prints.
func configPage(date time.Time) ([]byte, error) {
	var keys bytes.Buffer
	if err := config.Defaults(&keys); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `.TH "COMPUTE-AGENT.TOML" "5" "%s" "compute-agent %s" "compute-agent"
.SH NAME
compute-agent.toml \- configuration of compute-agent
.SH SYNOPSIS
.I /etc/compute-agent/compute-agent.toml
.br
.I /etc/compute-agent/conf.d/*.toml
.SH DESCRIPTION
The file is TOML. It has the sections of all services; each reads those that it uses. This page shows every key with its meaning,
its variable and its default, as
.B compute-agent config defaults
prints them.
.SH KEYS
.nf
`, date.Format(time.DateOnly), version.Number())
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\(ga")
	for line := range strings.Lines(keys.String()) {
		b.WriteString(`\&` + escape.Replace(line))
	}
	b.WriteString(".fi\n.SH SEE ALSO\n.BR compute-agent (1),\n.BR compute-agent-config-check (1)\n")
	return b.Bytes(), nil
}

func writeCompletion(root *cobra.Command, dir string) error {
	write := map[string]func(string) error{
		"completion.bash": func(f string) error { return root.GenBashCompletionFileV2(f, true) },
		"completion.zsh":  root.GenZshCompletionFile,
		"completion.fish": func(f string) error { return root.GenFishCompletionFile(f, true) },
	}
	for name, generate := range write {
		if err := generate(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
