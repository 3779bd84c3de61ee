// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

type junitSuite struct {
	XMLName  xml.Name `xml:"testsuite"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	// always 0: a check that times out is a failure; some readers need the attribute
	Errors  int         `xml:"errors,attr"`
	Skipped int         `xml:"skipped,attr"`
	Time    string      `xml:"time,attr"`
	Cases   []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitMessage `xml:"failure,omitempty"`
	Skipped *junitMessage `xml:"skipped,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report in the format that CI systems read: one test suite, a case for each
// check.
func (r Report) WriteJUnit(w io.Writer) error {
	suite := junitSuite{
		Name:  "compute-agent plugin test " + r.Name,
		Tests: len(r.Results), Failures: r.Count(Failed), Skipped: r.Count(NotRun),
	}
	var total float64
	for _, res := range r.Results {
		group, name, _ := strings.Cut(res.ID, "/")
		c := junitCase{Class: "drivertest." + group, Name: name, Time: fmt.Sprintf("%.3f", res.Took.Seconds())}
		total += res.Took.Seconds()
		switch res.Outcome {
		case Failed:
			c.Failure = &junitMessage{Message: plain(res.Came), Text: plain(res.Explain())}
		case NotRun:
			c.Skipped = &junitMessage{Message: plain("not run: " + res.Why)}
		case Passed:
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Time = fmt.Sprintf("%.3f", total)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(suite); err != nil {
		return fmt.Errorf("writing the JUnit report: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// WriteJUnitFile creates or replaces a file with what WriteJUnit writes.
func (r Report) WriteJUnitFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteJUnit(f), f.Close())
}

// plain removes characters that XML does not allow.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || (c >= ' ' && c != 0xFFFE && c != 0xFFFF) {
			return c
		}
		return -1
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
