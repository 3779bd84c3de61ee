// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/compute-agent/compute-agent/internal/config"
)

const (
	// leastMinor is the minor of the least microversion that the agent can work
	// with: 1.37, the newest that it writes with.
	leastMinor = 37
	// slowAnswer is a warning; an agent makes tens of requests at its start.
	slowAnswer = 2 * time.Second
)

func checkPlacement(_ context.Context, e *Env) []Result {
	const why = "The agent keeps the last good state, and the scheduler sees what was true then."
	p, c := e.probe(), e.Config.PlacementClient
	edit := e.command("editor %s", e.Config.File())
	look := "curl -sS -m 10 -D- " + c.URL + "/"
	switch {
	case p.setup != nil:
		return bad(p.setup.Error(), "The agent cannot speak to Placement at all.", edit)
	case p.err != nil:
		return e.unreachable(p.err, why, look, edit)
	case p.status == http.StatusServiceUnavailable, p.status == http.StatusBadGateway, p.status == http.StatusGatewayTimeout:
		return bad(fmt.Sprintf("%s answers %d: the service behind that address is down", c.URL, p.status), why, look)
	case p.status == http.StatusUnauthorized && !p.isAPI:
		return bad(c.URL+" asks for a login already for its version document: that is not Placement's own address", why, edit)
	case p.status != http.StatusOK || !p.isAPI:
		return bad(fmt.Sprintf("%s answers %d, and not as Placement does; the path may be missing (such as /placement)", c.URL, p.status), why, look)
	case tooOld(p.max, leastMinor):
		return bad(fmt.Sprintf("Placement serves microversions up to %s; the agent needs 1.%d", p.max, leastMinor),
			"Older ones cannot take what the agent writes. OpenStack Xena (Placement 6.0.0) is the first that can.", look)
	case p.authErr != nil:
		return e.unreachable(p.authErr, why, look, edit)
	case p.auth == http.StatusUnauthorized:
		return e.unauthorized(why)
	case p.auth == http.StatusForbidden:
		return bad("Placement knows who the agent is, and forbids it to read resource providers (403)", why,
			"openstack role add --user "+e.Agent.Name+" --project service service")
	case p.auth != http.StatusOK:
		return bad(fmt.Sprintf("a query for resource providers is answered with %d", p.auth), why, look)
	case p.took > slowAnswer:
		return warn(fmt.Sprintf("%s takes %v to answer", c.URL, p.took.Round(10*time.Millisecond)), "Start-up and every change take that long many times over.",
			"curl -sS -o /dev/null -w '%{time_namelookup} %{time_connect} %{time_starttransfer}\\n' "+c.URL+"/")
	}
	return fine("%s, microversions up to %s", c.URL, p.max)
}

func (e *Env) unauthorized(why string) []Result {
	c := e.Config.PlacementClient
	if c.Auth == config.AuthNoauth {
		return bad("Placement wants a token (401), and placement_client.auth is \"noauth\"", why, e.command("editor %s", e.Config.File()))
	}
	return bad("Placement does not accept the token (401); it is wrong or expired", why,
		fmt.Sprintf("openstack token issue -f value -c id | %s", e.command("tee %s > /dev/null", c.TokenFile)))
}

func (e *Env) unreachable(err error, why, look, edit string) []Result {
	c := e.Config.PlacementClient
	u, parseErr := url.Parse(c.URL)
	if parseErr != nil {
		return bad("placement_client.url is not a URL", why, edit)
	}
	if trouble, isTLS := tlsTrouble(err); isTLS {
		return bad(fmt.Sprintf("%s: %s", c.URL, trouble), why, fmt.Sprintf("openssl s_client -connect %s -servername %s -showcerts </dev/null", hostPort(u), u.Hostname()))
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return bad(fmt.Sprintf("the name %s cannot be resolved", u.Hostname()), why, "getent hosts "+u.Hostname())
	case errors.Is(err, syscall.ECONNREFUSED):
		start := look
		if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
			start = e.command("systemctl start compute-agent-placement.socket")
			if !e.systemd() {
				start = fmt.Sprintf("compute-agent placement serve --listen %s --state-dir %s", hostPort(u), e.Config.Agent.StateDir+"-placement")
			}
		}
		return bad("nobody listens at "+hostPort(u), why, start)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return bad(c.URL+" does not answer in time", why, look)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return bad("there is no way to "+hostPort(u), why, "ip route get "+u.Hostname())
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return bad(fmt.Sprintf("%s does not answer: %v", c.URL, err), why, look)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
