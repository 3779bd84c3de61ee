// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const disabledTrait = "COMPUTE_STATUS_DISABLED"

// isDisabled asks Placement.
func (e *env) isDisabled(uuid string) bool {
	e.t.Helper()
	var out struct{ Traits []string }
	url := e.url + "/resource_providers/" + uuid + "/traits"
	testproc.Send(e.t, nil, http.MethodGet, url, "placement 1.37", nil).Into(e.t, &out)
	return slices.Contains(out.Traits, disabledTrait)
}

// reasons are those that outlive the agent.
func (e *env) reasons() []statedir.Reason {
	e.t.Helper()
	s := testproc.Try(statedir.OpenDisabled(filepath.Join(e.dir, "state"))).Or(e.t)
	return s.Reasons("")
}

// told counts the writes to Placement for a node since a mark.
func (e *env) told(mark int, node string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for line := range strings.Lines(e.log.String()[mark:]) {
		if strings.Contains(line, `"operation":"`) && strings.Contains(line, `"node":"`+node+`"`) {
			n++
		}
	}
	return n
}

// pid is that of the driver's process that became healthy last.
func (e *env) pid(driver string) int {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	pid := 0
	for line := range strings.Lines(e.log.String()) {
		var r struct {
			Driver, State string
			PID           int
		}
		if json.Unmarshal([]byte(line), &r) == nil && r.Driver == driver && r.State == "healthy" && r.PID != 0 {
			pid = r.PID
		}
	}
	if pid == 0 {
		e.t.Fatalf("driver %s was never healthy", driver)
	}
	return pid
}

// own links an executable of its own for a driver, that can be taken away alone.
func (e *env) own(table string) (with string, away, back func()) {
	path := e.driver + "-own"
	check(e.t, os.Link(e.driver, path))
	return strings.Replace(table, fmt.Sprintf("path = %q", e.driver), fmt.Sprintf("path = %q", path), 1),
		func() {
			check(e.t, os.Rename(path, path+".away"))
			// without an executable it would not be tried
			check(e.t, testproc.WriteExecutable(path, []byte("#!/bin/sh\nexit 1\n")))
		},
		func() { check(e.t, os.Rename(path+".away", path)) }
}

// TestDriverGone: the nodes of a driver that stays away get the trait after its grace, by one
// write; those of another driver do not; and they lose it, by one write, when it is back.
func TestDriverGone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	table, away, back := h.own(h.node("fake", "cn1", uuidA, `unavailable_grace = "1s"`))
	h.configure(table, h.node("other", "cn2", uuidB, ""))
	h.start()
	<-h.ready
	mark := h.mark()
	away()
	check(t, syscall.Kill(h.pid("fake"), syscall.SIGKILL))
	h.await(mark, `"state":"backoff"`, `"driver":"fake"`)
	h.await(mark, `"operation":"`, disabledTrait, `"node":"cn1"`)
	h.await(mark, `"condition":"driver-gone"`, `"driver":"fake"`, `"details":["cn1"]`, `"hint"`)
	if !h.isDisabled(uuidA) || h.isDisabled(uuidB) {
		t.Errorf("cn1 disabled: %t, cn2: %t", h.isDisabled(uuidA), h.isDisabled(uuidB))
	}
	if r := h.reasons(); len(r) != 1 || r[0].Source != "driver fake" || r[0].Node != "cn1" ||
		!strings.Contains(r[0].Reason, "unavailable_grace of 1s") {
		t.Errorf("kept: %+v", r)
	}
	h.await(h.mark(), `"state":"backoff"`) // and many passes go by
	testproc.Equal(t, h.told(mark, "cn1"), 1, "%d writes for it")
	mark = h.mark()
	back()
	h.await(mark, `"operation":"`, disabledTrait, `"node":"cn1"`)
	h.await(mark, "Health: resolved", "driver-gone")
	if h.isDisabled(uuidA) || len(h.reasons()) != 0 {
		t.Errorf("still disabled: %t, %+v", h.isDisabled(uuidA), h.reasons())
	}
	testproc.Equal(t, h.told(mark, "cn1"), 1, "%d writes to enable it")
	testproc.Equal(t, h.told(mark, "cn2"), 0, "%d writes for the other driver's node")
}

// TestDriverGoneAcrossARestart: an agent whose driver does not even start disables the nodes that
// the driver reported before, and one that finds them disabled enables them when the driver is
// back. What an operator said stays.
func TestDriverGoneAcrossARestart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	table, away, back := h.own(h.node("fake", "cn1", uuidA, `unavailable_grace = "300ms"`))
	h.configure(table)
	h.start()
	<-h.ready
	h.stop()
	away()
	mark := h.mark()
	h.start()
	h.await(mark, `"operation":"`, disabledTrait, `"node":"cn1"`)
	if !h.isDisabled(uuidA) {
		t.Error("it is not disabled")
	}
	h.stop()
	s := testproc.Try(statedir.OpenDisabled(filepath.Join(h.dir, "state"))).Or(t)
	check(t, s.Disable(statedir.Reason{Source: statedir.Operator, Reason: "a fan is broken"}))
	back()
	mark = h.mark()
	h.start()
	h.await(mark, "resolved", "driver-gone")
	if r := h.reasons(); len(r) != 1 || r[0].Source != statedir.Operator || !h.isDisabled(uuidA) {
		t.Errorf("the operator's word is gone: %+v, disabled: %t", r, h.isDisabled(uuidA))
	}
	testproc.Equal(t, h.told(mark, "cn1"), 0, "%d writes, and nothing changed")
}

// TestReasonOfAFormerDriver: the reasons about a driver end with it. The driver that is given the
// node removes the trait.
func TestReasonOfAFormerDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	table, away, _ := h.own(h.node("fake", "cn1", uuidA, `unavailable_grace = "300ms"`))
	h.configure(table)
	h.start()
	<-h.ready
	away()
	mark := h.mark()
	check(t, syscall.Kill(h.pid("fake"), syscall.SIGKILL))
	h.await(mark, `"operation":"`, disabledTrait)
	mark = h.mark()
	h.configure(h.node("renamed", "cn1", uuidA, ""))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"node-claimed-twice"`)
	client := control.NewClient(config.Agent{RuntimeDir: filepath.Join(h.dir, "run")}.ControlSocket())
	assignment := testproc.Try(client.GiveNode(t.Context(), control.GiveRequest{Node: "cn1", To: "renamed"})).Or(t)
	if !assignment.Done || assignment.From != "fake" {
		t.Fatalf("GiveNode: got %+v, want it given from fake", assignment)
	}
	h.await(mark, `"operation":"`, disabledTrait, `"driver":"renamed"`)
	if h.isDisabled(uuidA) || len(h.reasons()) != 0 {
		t.Errorf("still disabled: %t, %+v", h.isDisabled(uuidA), h.reasons())
	}
}

// TestGraceOfNever, and one that a reload shortens.
func TestGraceOfNever(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	table, away, _ := h.own(h.node("fake", "cn1", uuidA, `unavailable_grace = "0s"`))
	h.configure(table)
	h.start()
	<-h.ready
	away()
	mark := h.mark()
	check(t, syscall.Kill(h.pid("fake"), syscall.SIGKILL))
	for range 20 {
		at := h.mark()
		h.await(at, `"state":"backoff"`)
	}
	if n := h.told(mark, "cn1"); n != 0 || len(h.reasons()) != 0 {
		t.Errorf("%d writes, %+v", n, h.reasons())
	}
	h.configure(strings.Replace(table, `"0s"`, `"100ms"`, 1))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"operation":"`, disabledTrait)
	mark = h.mark()
	h.configure(table)
	h.reload <- syscall.SIGHUP
	h.await(mark, `"operation":"`, disabledTrait)
	if h.isDisabled(uuidA) {
		t.Error("it stays disabled, although a grace of 0 s means never")
	}
}
