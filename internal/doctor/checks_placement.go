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
	"strings"
	"syscall"
	"time"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/reportclient"
)

// slowAnswer is a warning; an agent makes tens of requests at its start.
const slowAnswer = 2 * time.Second

func checkPlacement(_ context.Context, e *Env) []Result {
	const why = "Placement keeps the last written state, and the scheduler uses it."
	p, c := e.probe(), e.Config.PlacementClient
	edit := e.command("editor %s", e.Config.File())
	look := "curl -sS -m 10 -D- " + p.base + "/"
	switch {
	case errors.Is(p.setup, errNotRead):
		return skip("cannot be asked: %v", p.setup)
	case p.setup != nil:
		return fail(p.setup.Error(), "The agent cannot send requests to Placement.", edit)
	case p.login != nil:
		return e.notLoggedIn(p.login, edit)
	case p.err != nil:
		return e.unreachable(p.base, p.err, why, look, e.startPlacement)
	case p.service != "":
		return fail(fmt.Sprintf("at %s there is %s", p.base, p.service),
			"placement_client.url must be the URL of Placement. "+why, edit)
	case p.status == http.StatusServiceUnavailable, p.status == http.StatusBadGateway,
		p.status == http.StatusGatewayTimeout:
		return fail(fmt.Sprintf("%s answers %d: the service is down", p.base, p.status), why, look)
	case p.status == http.StatusUnauthorized && !p.isAPI:
		return fail(p.base+" requires authentication for its version document: this is not Placement's address", why,
			edit)
	case p.status != http.StatusOK || !p.isAPI:
		return fail(fmt.Sprintf("%s answers %d, but not like Placement; the path may be missing (such as /placement)",
			p.base, p.status), why, look)
	case tooOld(p.max):
		return fail(fmt.Sprintf("Placement serves microversions up to %s; the agent needs %s",
			p.max, reportclient.Microversion),
			"Older versions do not support the agent's requests. OpenStack Xena (Placement 6.0.0) is the "+
				"first that does.", look)
	case p.authErr != nil:
		return e.unreachable(p.base, p.authErr, why, look, e.startPlacement)
	case p.auth == http.StatusUnauthorized:
		return e.unauthorized(c, why)
	case p.auth == http.StatusForbidden && errors.Is(p.refused, placementclient.ErrHostRefused):
		return fail(fmt.Sprintf("Placement does not take this host for %s (403): %v", e.Config.Agent.Host, p.refused),
			why, e.showCertificate(c))
	case p.auth == http.StatusForbidden:
		return e.forbidden(p.identity, why)
	case p.auth != http.StatusOK:
		return fail(fmt.Sprintf("a query for resource providers returns %d", p.auth), why, look)
	case p.took > slowAnswer:
		return warn(fmt.Sprintf("%s takes %v to answer", p.base, p.took.Round(10*time.Millisecond)),
			"Start-up and every change need many requests.",
			"curl -sS -o /dev/null -w '%{time_namelookup} %{time_connect} %{time_starttransfer}\\n' "+p.base+"/")
	}
	if c.Auth == config.AuthKeystone {
		return pass("%s, microversions up to %s, as %s (roles: %s)",
			p.base, p.max, p.identity.User, strings.Join(p.identity.Roles, ", "))
	}
	if c.Auth == config.AuthCertificate {
		return pass("%s, microversions up to %s, with the certificate of the host", p.base, p.max)
	}
	return pass("%s, microversions up to %s", p.base, p.max)
}

// notLoggedIn explains a failed login at Keystone.
func (e *Env) notLoggedIn(err error, edit string) []Result {
	const why = "Without a token the agent cannot send requests to Placement; it retries."
	k := e.Config.PlacementClient.Keystone
	var failed *keystone.Error
	if !errors.As(err, &failed) {
		return fail(err.Error(), why, edit)
	}
	found := fmt.Sprintf("%v (%s): %s", failed.Kind, failed.AuthURL, failed.Detail)
	switch {
	case errors.Is(err, keystone.ErrCatalog):
		return fail(found, "The agent does not know the URL of Placement.",
			"openstack endpoint list --service placement")
	case errors.Is(err, keystone.ErrCredentials):
		return fail(found, why, edit)
	case failed.Status == 0 && failed.Cause != nil:
		return e.unreachable(k.AuthURL, failed.Cause, why, "curl -sS -m 10 -D- "+k.AuthURL, nil)
	}
	return fail(found, why, "curl -sS -m 10 -D- "+k.AuthURL)
}

func (e *Env) forbidden(who keystone.Identity, why string) []Result {
	found, user, project := "Placement denies the agent access to resource providers (403)", e.Agent.Name, "service"
	if who.User != "" {
		found += fmt.Sprintf("; the agent is %s with the roles %s", who.User, strings.Join(who.Roles, ", "))
		user = who.User
	}
	if who.Project != "" {
		project = who.Project
	}
	return fail(found, why, fmt.Sprintf("openstack role add --user %s --project %s service", user, project))
}

// showCertificate is the command that shows whose certificate the agent has, or who its token is
// for.
func (e *Env) showCertificate(c config.PlacementClient) string {
	if c.CertFile == "" {
		return e.command("editor %s", e.Config.File())
	}
	return e.command("openssl x509 -noout -subject -enddate -ext subjectAltName -in %s", c.CertFile)
}

func (e *Env) unauthorized(c config.PlacementClient, why string) []Result {
	if c.Auth == config.AuthCertificate {
		return fail("Placement does not take the host's certificate (401): it has expired, or the host is on the "+
			"deny list, or Placement has another placement_tls.host_ca_file", why, e.showCertificate(c))
	}
	if c.Auth == config.AuthNoauth {
		return fail("Placement requires a token (401), but placement_client.auth is \"noauth\"",
			why, e.command("editor %s", e.Config.File()))
	}
	if c.Auth == config.AuthKeystone {
		return fail("Placement rejects a token that Keystone has just issued (401): does it use the same Keystone?",
			why, "grep -A 12 keystone_authtoken /etc/placement/placement.conf")
	}
	return fail("Placement rejects the token (401); it is wrong or expired", why,
		fmt.Sprintf("openstack token issue -f value -c id | %s", e.command("tee %s > /dev/null", c.TokenFile)))
}

// startPlacement starts the bundled Placement.
func (e *Env) startPlacement(u *url.URL) string {
	if !e.systemd() {
		return fmt.Sprintf("compute-agent placement serve --listen %s --state-dir %s",
			hostPort(u), e.Config.Agent.StateDir+"-placement")
	}
	return e.command("systemctl start compute-agent-placement.socket")
}

// unreachable explains why an address does not answer. start, if set, returns the command that
// starts the service if the address is on this host.
func (e *Env) unreachable(address string, err error, why, look string, start func(*url.URL) string) []Result {
	u, parseErr := url.Parse(address)
	if parseErr != nil {
		return fail(fmt.Sprintf("%q is not a URL", address), why, e.command("editor %s", e.Config.File()))
	}
	if problem, isTLS := tlsProblem(err); isTLS {
		return fail(fmt.Sprintf("%s: %s", address, problem),
			why, fmt.Sprintf("openssl s_client -connect %s -servername %s -showcerts </dev/null",
				hostPort(u), u.Hostname()))
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return fail(fmt.Sprintf("the name %s cannot be resolved", u.Hostname()), why, "getent hosts "+u.Hostname())
	case errors.Is(err, syscall.ECONNREFUSED):
		fix := look
		if start != nil && osapi.IsLoopback(u.Hostname()) {
			fix = start(u)
		}
		return fail("no process listens at "+hostPort(u), why, fix)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return fail(address+" does not answer in time", why, look)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fail("no route to "+hostPort(u), why, "ip route get "+u.Hostname())
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fail(fmt.Sprintf("%s does not answer: %v", address, err), why, look)
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
