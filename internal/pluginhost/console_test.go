// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestConsoleLog: it comes as the guest wrote it, errors are typed, and what cannot be asked is not
// sent.
func TestConsoleLog(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	log, err := k.ConsoleLog(ctx, "cn1", strings.ToUpper(oneInstance), 100)
	if err != nil || string(log) != "cn1 "+oneInstance+" 100 \xff" {
		t.Errorf("ConsoleLog: got %q, %v", log, err)
	}
	if log, err := k.ConsoleLog(ctx, "cn1", oneInstance, 2); err != nil || string(log) != " \xff" {
		t.Errorf("a driver that returns more than was asked for: %q, %v", log, err)
	}
	testproc.Try(k.ConsoleLog(ctx, "cn1", rootUUID, 1)).ErrorIs(t, plugins.ErrInstanceNotFound, "no such instance: %v")
	var fault *plugins.InstanceFault
	if _, err := k.ConsoleLog(ctx, "cn1", "aaaaaaaa-2222-3333-4444-55555555abcd", 1); !errors.As(err, &fault) ||
		fault.UUID == "" {
		t.Errorf("no log: %v", err)
	}
	for _, most := range []int{0, -1, plugins.MaxConsoleLog + 1} {
		testproc.Try(k.ConsoleLog(ctx, "cn1", oneInstance, most)).
			ErrorIs(t, driverclient.ErrBadRequest, "%d bytes: %v", most)
	}
	testproc.Try(k.ConsoleLog(ctx, "cn1", "x", 1)).ErrorIs(t, driverclient.ErrBadRequest, "no uuid: %v")
	if got := k.Abilities(); !slices.Contains(got, plugins.AbilityConsoleLog) ||
		!slices.Contains(got, plugins.AbilityConsole) {
		t.Errorf("abilities: %v", got)
	}
	p := newRig(t).mustStart(chaosSpec("", nil))
	if _, err := p.ConsoleLog(ctx, "cn1", oneInstance, 1); !errors.Is(err, plugins.ErrUnsupported) {
		t.Errorf("a plugin without instances: %v", err)
	}
}

// TestConsole: what is typed arrives and what the guest writes comes back, until one of them ends
// it; what cannot be opened says why.
func TestConsole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), t.Context()
	open := func() io.ReadWriteCloser {
		t.Helper()
		c := testproc.Try(k.OpenConsole(ctx, "cn1", strings.ToUpper(oneInstance))).Or(t)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := open()
	long := strings.Repeat("long", 50_000)
	for _, text := range []string{"a", "\x00\xff\r", long} {
		go func() { _, _ = io.WriteString(c, text) }()
		want := ""
		for part := range slices.Chunk([]byte(text), protocol.MaxConsolePart) {
			want += "cn1:" + string(part)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%.20q came back of %.20q: %v", got, text, err)
		}
	}
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) != 0 {
		t.Errorf("a console that ended: %q, %v", rest, err)
	}
	for text, want := range map[string]string{"fail": "the pty is gone", "panic": "closed"} {
		c := open()
		if _, err := io.WriteString(c, text); err != nil {
			t.Error(err)
		}
		testproc.Try(io.ReadAll(c)).ErrorHas(t, want, "%s: %v", text)
	}
	c = open()
	go func() { _ = c.Close() }()
	testproc.Try(io.ReadAll(c)).ErrorIs(t, context.Canceled, "a console that is closed: %v")
	testproc.Try(k.OpenConsole(ctx, "cn1", rootUUID)).ErrorIs(t, plugins.ErrInstanceNotFound, "no such instance: %v")
	var fault *plugins.InstanceFault
	if _, err := k.OpenConsole(ctx, "cn1", "aaaaaaaa-2222-3333-4444-55555555abcd"); !errors.As(err, &fault) ||
		fault.UUID == "" || fault.Reason != "another user has it" {
		t.Errorf("a console in use: %v", err)
	}
	testproc.Try(k.OpenConsole(ctx, "cn1", "x")).ErrorIs(t, driverclient.ErrBadRequest, "no uuid: %v")
	p := newRig(t).mustStart(chaosSpec("", nil))
	if _, err := p.OpenConsole(ctx, "cn1", oneInstance); !errors.Is(err, plugins.ErrUnsupported) {
		t.Errorf("a plugin without instances: %v", err)
	}
}
