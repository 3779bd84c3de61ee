// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/systemd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// systemctl is what systemd hears of the environment's agent.
type systemctl struct {
	t        *testing.T
	messages chan string
}

// watched has the environment's agent talk to us as to systemd, which wants signs of life.
func (e *env) watched(interval time.Duration) *systemctl {
	e.t.Helper()
	path := filepath.Join(e.dir, "notify")
	conn := testproc.Try(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})).Or(e.t)
	e.t.Cleanup(func() { _ = conn.Close() })
	e.t.Setenv("NOTIFY_SOCKET", path)
	e.t.Setenv("WATCHDOG_USEC", fmt.Sprint(interval.Microseconds()))
	e.notify = testproc.Try(systemd.New()).Or(e.t)
	// They are taken at once: a full socket loses what is sent next.
	s := &systemctl{t: e.t, messages: make(chan string, 1<<16)}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			size, err := conn.Read(buf)
			if err != nil {
				return
			}
			s.messages <- string(buf[:size])
		}
	}()
	return s
}

// hears waits for a message, and returns how many signs of life came before it, or, if it is one,
// when so many of them have come.
func (s *systemctl) hears(text string, n int) (alive int) {
	s.t.Helper()
	given := time.NewTimer(testproc.Patience)
	defer given.Stop()
	for {
		var message string
		select {
		case message = <-s.messages:
		case <-given.C:
			s.t.Fatalf("systemd never received %s, %d more times, and %d signs of life", text, n, alive)
		}
		if strings.Contains(message, text) {
			if n--; n == 0 {
				return alive
			}
		}
		if strings.Contains(message, life) {
			alive++
		}
	}
}

const life = "WATCHDOG=1"

// isReported waits until the inventories of nodes are in Placement: their drivers serve calls.
func (e *env) isReported(nodes ...string) {
	e.t.Helper()
	for _, node := range nodes {
		e.await(0, `"operation":"`, "VCPU", `"node":"`+node+`"`)
	}
}

// TestHangingReloadIsAlive: while a driver hangs in its new configuration, systemd goes on to hear
// signs of life, and hears in bounded time that the reload is over. It goes on all the same: the
// driver has its configuration when it wakes up, and the last one that it was given.
func TestHangingReloadIsAlive(t *testing.T) {
	h := newEnv(t)
	const interval, perInterval = 1500 * time.Millisecond, 3
	systemd := h.watched(interval)
	file := filepath.Join(h.dir, "go")
	const keys = "timeouts = {configure = \"1h\", stop = \"500ms\"}\nrestart = {health_misses = 100}"
	hangs := func(update string) string {
		return h.chaos(keys, fmt.Sprintf("configure = \"wait\"\nfile = %q\nupdate = %q", file, update))
	}
	h.deadline = "1s"
	h.configure(h.chaos(keys, ""), h.node("fake", "cn2", uuidB, ""))
	h.start()
	<-h.ready
	systemd.hears("READY=1", 1)
	h.isReported("cn1", "cn2") // READY=1 may come at the deadline

	mark := h.mark()
	h.configure(hangs("error"), strings.Replace(h.node("fake", "cn2", uuidB, ""), "total = 8", more, 1))
	h.reload <- syscall.SIGHUP
	systemd.hears("RELOADING=1", 1)
	systemd.hears("READY=1", 1)
	// the other one may need longer, too
	h.await(mark, "Reload: these drivers have not applied their new configuration yet", `"drivers":["chaos"`)
	h.await(mark, "VCPU total 8→16", `"driver":"fake"`)
	systemd.hears(life, 3*perInterval) // heartbeats that had stopped would last one interval
	if h.has(mark, "The plugin was configured again", `"driver":"chaos"`) {
		t.Error("the driver did not hang")
	}

	t.Log("and again, twice: of those that wait for the driver, the last counts")
	for _, update := range []string{"panic", "not-ready"} {
		h.configure(hangs(update), h.node("fake", "cn2", uuidB, ""))
		h.reload <- syscall.SIGHUP
		systemd.hears("RELOADING=1", 1)
		systemd.hears("READY=1", 1)
	}
	check(t, os.WriteFile(file, nil, 0o600))
	h.await(mark, "it sleeps", `"driver":"chaos"`)
	if h.has(mark, "panic", `"error"`) {
		t.Error("a configuration was in force that a later one had replaced before the driver could take it")
	}
}

// TestStopDuringAHangingReload: the agent ends, and does not wait for the driver.
func TestStopDuringAHangingReload(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.deadline = "1s"
	const keys = "timeouts = {nodes = \"300ms\", update = \"300ms\", configure = \"1h\", stop = \"500ms\"}\nrestart " +
		"= {health_misses = 100}"
	h.configure(h.chaos(keys, ""))
	h.start()
	<-h.ready
	h.isReported("cn1")
	mark := h.mark()
	h.configure(h.chaos(keys, `configure = "hang"`))
	h.reload <- syscall.SIGHUP
	h.await(mark, "Reload: these drivers have not applied their new configuration yet")
	h.stop()
	if !h.has(mark, "The agent has stopped") {
		t.Error("it did not stop in order")
	}
}
