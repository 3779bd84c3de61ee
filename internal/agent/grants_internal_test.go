// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// contested is a consumer that another client writes so many times.
type contested struct {
	generation int64
	writes     int
	held       providertree.ProviderResources
	reads      int
	ours       []string // all that a Placement which knows hosts lets it remove; nil: everything
	elsewhere  bool
}

func (c *contested) OwnProviders(context.Context, []string) ([]string, error) { return c.ours, nil }

func (c *contested) Consumer(_ context.Context, uuid string) (reportclient.Consumer, error) {
	c.reads++
	generation := c.generation
	return reportclient.Consumer{UUID: uuid, Elsewhere: c.elsewhere,
		ConsumerAllocations: providertree.ConsumerAllocations{Generation: &generation, Resources: c.held}}, nil
}

func (c *contested) DeleteOurPart(_ context.Context, consumer reportclient.Consumer, ours []string) (bool, error) {
	if c.writes > 0 {
		c.writes--
		c.generation++
	}
	switch {
	case len(consumer.Resources) == 0:
		return false, nil
	case *consumer.Generation != c.generation:
		return true, fmt.Errorf("PUT: %w", reportclient.ErrConflict)
	case c.ours != nil && len(ours) > len(c.ours):
		return true, fmt.Errorf("PUT: %w", reportclient.ErrHostRefused)
	case c.ours != nil:
		for _, uuid := range ours {
			delete(c.held, uuid)
		}
		return len(ours) > 0, nil
	case len(ours) != len(c.held):
		return true, errors.New("a part was kept")
	}
	c.held = nil
	return true, nil
}

// TestRemovingAllocations: what another client writes meanwhile is read again, a few times, and
// nothing is done where there is nothing.
func TestRemovingAllocations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for writes, want := range map[int]bool{0: true, 1: true, 4: true, 50: false} {
		c := &contested{writes: writes,
			held: providertree.ProviderResources{"p": {"VCPU": 1}, "shared": {"DISK_GB": 1}}}
		err := grants{c}.Remove(t.Context(), "u")
		if (err == nil) != want || (c.held == nil) != want ||
			(err != nil && !errors.Is(err, reportclient.ErrConflict)) {
			t.Errorf("%d writes: %v, holds %v", writes, err, c.held)
		}
		testproc.Equal(t, c.reads, min(writes+1, grantTries), "%d writes: read %d times", writes)
	}
	nothing := &contested{}
	if err := (grants{nothing}).Remove(t.Context(), "u"); err != nil || nothing.reads != 1 {
		t.Errorf("%v after %d reads", err, nothing.reads)
	}
}

// TestRemovingTheHostsPart: where Placement does not let a host remove what a server has on another
// one, the rest goes. Of a server that is on other hosts only, nothing is removed, and there is no
// guest to build.
func TestRemovingTheHostsPart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := &contested{ours: []string{"p"}, held: providertree.ProviderResources{"p": {"VCPU": 1}, "other": {"VCPU": 1}}}
	if err := (grants{c}).Remove(t.Context(), "u"); err != nil || len(c.held) != 1 || c.held["other"] == nil {
		t.Errorf("%v, holds %v", err, c.held)
	}
	away := &contested{elsewhere: true}
	testproc.NoError(t, (grants{away}).Remove(t.Context(), "u"))
	if got, err := (grants{away}).Granted(t.Context(), "u"); err == nil {
		t.Errorf("granted %v", got)
	}
}

// TestReasonsOfTheCell: any reason that a client gave to the compute API can be kept.
func TestReasonsOfTheCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for text, want := range map[string]string{
		"a fan": "a fan", "": "disabled through the compute API, without a reason",
		" \n\t":      "disabled through the compute API, without a reason",
		"two\nlines": "two lines", "\x1b[31mred": "[31mred", "\u202eevil": "evil",
		strings.Repeat("ü", 900): strings.Repeat("ü", 500), "\xff": "�",
	} {
		got := oneLine(text)
		if got != want || statedir.CheckReason(got) != nil || !utf8.ValidString(got) {
			t.Errorf("oneLine(%q): got %q", text, got)
		}
	}
}
