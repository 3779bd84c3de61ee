// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// Certificates prints who certificates are for, with a line for each thing that one says.
func Certificates(w io.Writer, all []pki.Description) error {
	for i, c := range all {
		if i > 0 {
			_, _ = fmt.Fprintln(w)
		}
		var rows [][]string
		for _, row := range [][]string{
			{"For", c.Kind + " " + c.Name},
			{"Names", strings.Join(append(slices.Clone(c.Names), c.Addresses...), ", ")},
			{"Nodes", strings.Join(c.Nodes, ", ")},
			{"Cell", c.Cell},
			{"Use", strings.Join(c.Usages, ", ")},
			{"Issuer", c.Issuer},
			{"Valid", fmt.Sprintf("%s until %s (%s)", c.NotBefore.Format(time.RFC3339),
				c.NotAfter.Format(time.RFC3339), c.State)},
			{"Fingerprint", c.Fingerprint},
		} {
			if row[1] != "" {
				rows = append(rows, []string{row[0], textutil.Printable(row[1])})
			}
		}
		if _, err := io.WriteString(w, Table(rows)); err != nil {
			return err
		}
	}
	return nil
}

// Denials prints the hosts of a deny list, and its header. path is its file.
func Denials(w io.Writer, path string, list *pki.DenyList) error {
	if len(list.Denials()) == 0 {
		_, _ = fmt.Fprintf(w, "No host is on the deny list %s.\n", path)
	} else {
		rows := [][]string{{"HOST", "REFUSED BEFORE", "REASON"}}
		for _, d := range list.Denials() {
			rows = append(rows, []string{d.Host, d.Before.Format(time.RFC3339), d.Reason})
		}
		if _, err := io.WriteString(w, Table(rows)); err != nil {
			return err
		}
	}
	serial, date := list.Header()
	text := fmt.Sprintf("Serial %d of %s.", serial, date.Format(time.RFC3339))
	if serial == 0 {
		text = "The list has no header, so that a part of it that is lost is not noticed: " +
			"compute-agent ca deny-list --renew writes one."
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
