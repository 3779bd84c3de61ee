// SPDX-License-Identifier: Apache-2.0

package agentruns

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Process is one run of an agent. Two tokens are two runs, on one machine or on two.
type Process struct {
	Token string `json:"token"` // 1 to 64 printable characters of ASCII
	// Boot is the kernel's boot id, Machine a hash of the machine's id; "": it is not known. A
	// cloned disk has the same machine id, and another boot id.
	Boot    string    `json:"boot,omitempty"`
	Machine string    `json:"machine,omitempty"`
	Started time.Time `json:"started"`
	// Address is where it reports from; only the server says so.
	Address string `json:"address,omitempty"`
}

// String is for people.
func (p Process) String() string {
	text := fmt.Sprintf("one that started at %s", p.Started.UTC().Format(time.RFC3339))
	switch {
	case strings.HasPrefix(p.Address, "@"): // as net/http has a socket without a name
		text += " and reports over a unix socket"
	case p.Address != "":
		text += " and reports from " + p.Address
	}
	return text + fmt.Sprintf(" (boot id %.8s, machine %.8s)", cmp.Or(p.Boot, "unknown"), cmp.Or(p.Machine, "unknown"))
}

// Check returns an error for what no agent says of itself.
func (p Process) Check() error {
	for _, c := range []struct{ what, text string }{{"token", p.Token}, {"boot id", p.Boot}, {"machine", p.Machine}} {
		if len(c.text) > 64 || strings.ContainsFunc(c.text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return fmt.Errorf("the %s of the agent has more than 64 characters, or others than printable ones of ASCII",
				c.what)
		}
	}
	if p.Token == "" {
		return errors.New("the agent has no token")
	}
	return nil
}

// SeveralAgents says that several agents report as a host, for people.
func SeveralAgents(host string, agents []Process) string {
	texts := make([]string, 0, len(agents))
	for _, a := range agents {
		texts = append(texts, a.String())
	}
	return fmt.Sprintf("%d agents report as host %s: %s", len(agents), host, strings.Join(texts, "; "))
}

// Agents are the processes that report as one host to one server: a cell, Placement, the enrolment
// service. The zero value knows none.
//
// Two machines can have one name and one identity, certificate included: a cloned disk, or a
// restored one. Their agents differ not in who they are, but in their tokens, of which each process
// has its own.
//
// That a second token comes says nothing: an agent that is restarted has one, and a report of the
// process before may arrive after it. So each answer has the host's turn, a number that grows with
// each token that comes, and each report the last turn that its process was answered. Two processes
// that have both reported with the turn at which the later one came, or a later turn, both lived
// then. One that had ended before cannot have got that answer, however late its reports arrive.
//
//	A  first report       ── turn 7 ──▶
//	B  first report                     ── turn 8 ──▶
//	A  report, turn 7     ── turn 8 ──▶                   may be late
//	B  report, turn 8                   ── turn 8 ──▶     B got its answer
//	A  report, turn 8                                     A lives although B came: proof
//
// It ends when all but one of them said that they stop, or were not seen for a window.
type Agents struct {
	Turn  int64       `json:"turn"`
	Until int64       `json:"until,omitempty"` // until when it is proven that there are two; 0: it is not
	All   []HostAgent `json:"agents,omitempty"`

	// Changed says that Add changed something that must be written down, Gone are the tokens that
	// it dropped. The owner of the Agents resets both.
	Changed bool     `json:"-"`
	Gone    []string `json:"-"`
}

// HostAgent is one process that reports as a host. Times are in microseconds.
type HostAgent struct {
	Process
	First int64 `json:"first"` // the turn at which it came
	Shown int64 `json:"shown"` // the latest turn that it was answered, as far as that matters
	Seen  int64 `json:"seen"`  // when it reported last; of the one that was seen last, the server may know it

	// Fresh and Dirty ones are new, or changed, since they were written down.
	Fresh bool `json:"-"`
	Dirty bool `json:"-"`
}

// Report is what one request of an agent says.
type Report struct {
	// Process is nil for an agent that is older than tokens. Turn is the number in the last answer
	// that it got, 0 if it got none.
	Process *Process
	Turn    int64
	// Stopping says that it is the agent's last one.
	Stopping bool
	// Address is where it comes from.
	Address string
	// LastSeen is when the host was last seen before it, if the server knows it otherwise.
	LastSeen int64
}

// maxAgents bounds the agents of a host that are remembered, those seen last.
const maxAgents = 8

// Index returns the position in All of the agent with the token, or -1.
func (ag *Agents) Index(token string) int {
	return slices.IndexFunc(ag.All, func(a HostAgent) bool { return a.Token == token })
}

// Add records a report. window is how long after its last report an agent still counts as one of
// two. stops says whether the host stops: not if the agent that stops is one of several, or was
// followed by another one.
func (ag *Agents) Add(r Report, at time.Time, window time.Duration) (stops bool) {
	if r.Process == nil {
		return r.Stopping
	}
	now, within := at.UnixMicro(), window.Microseconds()
	token := r.Process.Token
	ag.removeIf(func(a HostAgent) bool { return a.Token != token && a.Seen > now+within }) // by a clock that was wrong
	latest := ag.latest()
	if latest >= 0 && r.LastSeen > ag.All[latest].Seen { // only its reports were not written down
		ag.All[latest].Seen, ag.All[latest].Dirty = r.LastSeen, true
	}
	if r.Stopping {
		return ag.remove(token, now, within)
	}
	if i := ag.Index(token); i < 0 {
		ag.removeIf(func(a HostAgent) bool { return !closeTo(now, a.Seen, within) })
		for len(ag.All) >= maxAgents {
			oldest := slices.MinFunc(ag.All, func(a, b HostAgent) int { return cmp.Compare(a.Seen, b.Seen) })
			ag.removeIf(func(a HostAgent) bool { return a.Token == oldest.Token })
		}
		ag.Turn = max(ag.Turn+1, now) // also after an older copy of the database, or of the server
		process := *r.Process
		process.Address = r.Address
		ag.All, ag.Changed = append(ag.All,
			HostAgent{Process: process, First: ag.Turn, Seen: now, Fresh: true}), true
	} else {
		one := &ag.All[i]
		shown := max(one.Shown, min(r.Turn, ag.Turn))
		if len(ag.All) > 1 && (shown != one.Shown || i != latest || one.Address != r.Address || one.Seen > now+within) {
			one.Shown, one.Dirty, ag.Changed = shown, true, true
		}
		one.Address, one.Seen = r.Address, now
	}
	ag.updateUntil(now, within)
	return false
}

// latest is the index of the agent that was seen last, or -1.
func (ag *Agents) latest() int {
	latest := -1
	for i := range ag.All {
		if latest < 0 || ag.All[i].Seen > ag.All[latest].Seen {
			latest = i
		}
	}
	return latest
}

// remove removes a process that stops.
func (ag *Agents) remove(token string, now, window int64) (stops bool) {
	i := ag.Index(token)
	later := slices.ContainsFunc(ag.All, func(a HostAgent) bool {
		return a.Token != token && closeTo(now, a.Seen, window) &&
			(i < 0 || a.First > ag.All[i].First || bothLive(a, ag.All[i]))
	})
	ag.removeIf(func(a HostAgent) bool { return a.Token == token })
	ag.updateUntil(now, window)
	return !later
}

func (ag *Agents) removeIf(which func(HostAgent) bool) {
	ag.All = slices.DeleteFunc(ag.All, func(a HostAgent) bool {
		is := which(a)
		if is {
			ag.Gone, ag.Changed = append(ag.Gone, a.Token), true
		}
		return is
	})
}

// updateUntil determines until when it is proven that two live.
func (ag *Agents) updateUntil(now, window int64) {
	until := int64(0)
	for i, a := range ag.All {
		for _, b := range ag.All[:i] {
			if provenNow(a, b, now, window) {
				until = max(until, min(a.Seen, b.Seen)+window)
			}
		}
	}
	ag.Changed = ag.Changed || until != ag.Until
	ag.Until = until
}

// bothLive reports whether two agents have shown that they lived at the same time.
func bothLive(a, b HostAgent) bool { return min(a.Shown, b.Shown) >= max(a.First, b.First) }

// provenNow reports whether two agents have, and were both seen within a window.
func provenNow(a, b HostAgent, now, window int64) bool {
	return bothLive(a, b) && closeTo(now, a.Seen, window) && closeTo(now, b.Seen, window)
}

// closeTo reports whether two times are at most a window apart, in microseconds.
func closeTo(now, at, window int64) bool { return max(now-at, at-now) <= window }

// HasSeveral reports whether several agents are proven now, by [Agents].Until. A time beyond the
// window is of a clock that was wrong.
func HasSeveral(until int64, at time.Time, window time.Duration) bool {
	now := at.UnixMicro()
	return until > now && until <= now+window.Microseconds()
}

// Live returns the agents of which it is proven that others live beside them, without those that
// ended before.
func (ag *Agents) Live(at time.Time, window time.Duration) (live []Process) {
	if !HasSeveral(ag.Until, at, window) {
		return nil
	}
	for i, a := range ag.All {
		for j, b := range ag.All {
			if i != j && provenNow(a, b, at.UnixMicro(), window.Microseconds()) {
				live = append(live, a.Process)
				break
			}
		}
	}
	return live
}
