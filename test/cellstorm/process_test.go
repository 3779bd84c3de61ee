// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	binaries = testproc.Of("cmd/compute-agent", "cmd/compute-driver-fake", "cmd/compute-driver-libvirt")
	check    = testproc.Check
)

const patience = testproc.Patience

func TestMain(m *testing.M) {
	testhost.SimMain()
	flag.Parse()
	os.Exit(binaries.Main(m))
}

// process is one that is killed and started again. That it ends by itself is remembered.
type process struct {
	*testproc.Process
	// tries says that it needs a database on a server. If it ends before it serves, because that
	// does not answer, it is started again, as systemd does.
	tries bool
	died  []string // that it ended by itself, and how
	kill  func()   // ends it as a power cut does
}

// start starts it when it was killed.
func (p *process) start(t testing.TB) { p.watch(t, p.Again(t)) }

// watch looks after it until it is killed. It writes from a mark on.
func (p *process) watch(t testing.TB, mark int) {
	end, ended := make(chan struct{}), make(chan struct{})
	p.kill = func() {
		close(end)
		<-ended
		p.kill = func() {}
	}
	go func() {
		defer close(ended)
		for p.runs(end) {
			if !p.tries || p.Code() != 1 || p.Count(mark, "is serving.") > 0 {
				lines := p.Lines()
				log := strings.Join(lines[max(mark, len(lines)-5):], "\n")
				p.died = append(p.died,
					fmt.Sprintf("%s ended by itself with %d; the end of its log:\n%s", p.Name(), p.Code(), log))
				return
			}
			select {
			case <-end:
				return
			case <-time.After(restartAfter):
				mark = p.Again(t)
			}
		}
	}()
}

// restartAfter is after what time one that could not start is started again.
const restartAfter = 500 * time.Millisecond

// runs kills it at the end, and returns true when it has ended by itself.
func (p *process) runs(end <-chan struct{}) bool {
	select {
	case <-p.Done():
	case <-end:
		select {
		case <-p.Done():
		default:
			p.Kill()
			return false
		}
	}
	return true
}

// troubles are that it ended by itself, and that its log has a panic.
func (p *process) troubles() []string {
	out := p.died
	for _, line := range p.Lines() {
		for _, bad := range []string{"panic:", "fatal error:", "panicked", "DATA RACE"} {
			if strings.Contains(line, bad) {
				out = append(out, fmt.Sprintf("the log of %s has: %s", p.Name(), line))
			}
		}
	}
	return out
}
