// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestConsoleLogIsBounded: the end of what a machine wrote is kept.
func TestConsoleLogIsBounded(t *testing.T) {
	m := machine{UUID: "u", Name: "web", Log: strings.Repeat("x", maxLog-10)}
	for range 100 {
		m.writeBoot()
		m.writeHalt()
	}
	if len(m.Log) != maxLog || !strings.HasSuffix(m.Log, "web login: \r\nSystem halted.\r\n") {
		t.Errorf("%d bytes, ending with %q", len(m.Log), m.Log[len(m.Log)-50:])
	}
}

// TestConsole: a machine answers what is typed, to one user at a time, until it is switched off.
func TestConsole(t *testing.T) {
	ctx, raw := t.Context(), managed("flat", "{}")
	d := process(t, raw, t.TempDir())
	refused := func(when string, reason string) {
		t.Helper()
		var fault *plugins.InstanceFault
		if _, err := d.OpenConsole(ctx, "cn1", guestA); !errors.As(err, &fault) || fault.Reason != reason {
			t.Errorf("%s: %v", when, err)
		}
	}
	testproc.Try(d.OpenConsole(ctx, "cn1", guestA)).ErrorIs(t, plugins.ErrInstanceNotFound, "no machine: %v")
	testproc.Try(d.Spawn(ctx, "cn1", wanted(map[string]int64{"VCPU": 2}), reported(t, raw))).Or(t)
	var last io.ReadWriteCloser
	for range 2 {
		c := testproc.Try(d.OpenConsole(ctx, "cn1", guestA)).Or(t)
		refused("a second user", "another user has its console")
		go func() { _, _ = io.WriteString(c, "lx\x7fs\x01\r\r") }()
		want := "lx\b \bs\r\nweb: ls: command not found\r\n$ \r\n$ "
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%q, %v", got, err)
		}
		last = c
		testproc.NoError(t, errors.Join(c.Close(), c.Close()))
	}
	if _, err := last.Read(make([]byte, 1)); err == nil {
		t.Error("a console that was closed is read")
	}
	c := testproc.Try(d.OpenConsole(ctx, "cn1", guestA)).Or(t)
	testproc.Try(d.SetPower(ctx, "cn1", guestA, plugins.PowerShutdown, false)).Or(t)
	if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
		t.Errorf("a machine that is off: %q, %v", rest, err)
	}
	if _, err := io.WriteString(c, "x"); err == nil {
		t.Error("a machine that is off takes input")
	}
	_ = c.Close()
	refused("a machine that is off", "it does not run")
}
