// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Checks of single values.

const (
	secretWords = "an absolute path, or the bare name of a systemd credential"
	idWords     = "an identifier of 1 to 255 characters"
)

// rules has the rule for each value of is in keys.toml. Empty texts pass.
var rules = map[string]rule{
	"audit-file":   {check: auditFile},
	"cell-listen":  {check: cellListen},
	"cell-urls":    {check: cellURLs},
	"class-rename": {check: classRename},
	"consumer":     {idWords, consumerID},
	"database": {"a DSN such as \"sqlite:///PATH\" or \"mysql://USER@HOST/DATABASE?password_file=PATH\"",
		databaseDSN},
	"extension": {"an array of " + quotedSeries(wire.Extensions[:], "and"),
		oneOf(wire.Extensions[:], "an extension")},
	"header": {check: matching("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$", // RFC 9110's token
		"the name of a header", "write a name such as \"X-Auth-Token\"")},
	"host":         {check: hostName},
	"host-pattern": {check: hostPattern},
	"interface":    {check: oneOf([]string{"internal", "public", "admin"}, "an interface of an endpoint")},
	"ip":           {check: hostIP},
	"listen":       {"\"HOST:PORT\" or \":PORT\"", listenAddress},
	"method": {check: matching("^[A-Z]{1,32}$",
		"the name of a method", "write a name in capitals, such as \"GET\"")},
	"network":    {check: proxyNetwork},
	"origin":     {check: origin},
	"path":       {"an absolute path", absolutePath},
	"pci-alias":  {check: pciAlias},
	"prefix":     {check: memberPrefix},
	"secret":     {secretWords, secretPath},
	"secure-url": {check: secureURL},
	"sha256": {check: matching("^[0-9a-f]{64}$",
		"a SHA-256 in lower-case hexadecimal", "run sha256sum on the plugin and copy the 64 digits")},
	"url":      {"a URL", serviceURL},
	"variable": {check: variableName},
	"zone":     {"a name", zoneName},
}

// hostName accepts what may name a resource provider: Placement takes 1 to 200
// characters; spaces would only be a slip.
func hostName(s string) *fault {
	if utf8.RuneCountInString(s) > 200 || strings.ContainsAny(s, " /") {
		return faultf("write a name of 1 to 200 characters without spaces and slashes, such as \"node-1.example\"",
			"%s cannot name a host", shown(s))
	}
	return nil
}

func absolutePath(s string) *fault {
	if !filepath.IsAbs(s) {
		return faultf("write the whole path, from /", "%s is not an absolute path", shown(s))
	}
	if len(s) > 4095 {
		return faultf("use a shorter path", "the path is longer than the 4095 bytes that Linux allows")
	}
	return nil
}

// credentialName is what systemd accepts as the name of a credential.
var credentialName = regexp.MustCompile(`^[A-Za-z0-9_.@:-]{1,255}$`)

// secretPath accepts a path or the name of a credential. Anything else may be
// the secret itself, so it is not repeated.
func secretPath(s string) *fault {
	if filepath.IsAbs(s) && len(s) <= 4095 {
		return nil
	}
	if credentialName.MatchString(s) && s != "." && s != ".." {
		return nil
	}
	f := faultf("write "+secretWords+"; the secret itself belongs in that file",
		"this is neither an absolute path nor the name of a credential")
	f.secret = true
	return f
}

func serviceURL(s string) *fault {
	const like = "write a URL such as \"https://placement.example:8778\""
	u, err := url.Parse(s)
	if err != nil {
		f := faultf(like, "this is not a URL")
		f.secret = strings.Contains(s, "@")
		return f
	}
	switch {
	case u.User != nil:
		f := faultf("take the name and the password out of the URL; secrets belong in files of their own",
			"a URL in the configuration may not hold credentials")
		f.secret = true
		return f
	case u.Scheme != "http" && u.Scheme != "https":
		return faultf(like, "%s does not begin with http:// or https://", shown(s))
	case u.Hostname() == "":
		return faultf(like, "%s names no host", shown(s))
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return faultf("end the URL with its path", "%s has a query or a fragment", shown(s))
	}
	return nil
}

func hostIP(s string) *fault {
	if ip, err := netip.ParseAddr(s); err != nil || ip.String() != s || ip.Zone() != "" || ip.IsUnspecified() {
		return faultf("write an address such as \"192.0.2.7\" or \"2001:db8::7\"",
			"%s is not the IP address of a host", shown(s))
	}
	return nil
}

// secureURL accepts the URL of a service that must prove who it is.
func secureURL(s string) *fault {
	if bad := serviceURL(s); bad != nil || strings.HasPrefix(s, "https://") {
		return bad
	}
	return faultf("write the URL with https://",
		"%s does not begin with https://: other machines in between could change the answer", shown(s))
}

// proxyNetwork accepts an address or a network.
func proxyNetwork(s string) *fault {
	if _, err := parseNetwork(s); err != nil {
		return faultf("write an address such as \"192.0.2.10\", or a network such as \"10.1.0.0/16\"",
			"%s is no address and no network", shown(s))
	}
	return nil
}

// parseNetwork reads a network; an address is one of its own.
func parseNetwork(s string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(s); err == nil {
		address = address.Unmap().WithZone("")
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(s)
	return network.Masked(), err
}

// Proxies returns TrustedProxies.
func (s Server) Proxies() []netip.Prefix {
	var networks []netip.Prefix
	for _, text := range s.TrustedProxies {
		if network, err := parseNetwork(text); err == nil { // proxyNetwork has accepted it
			networks = append(networks, network)
		}
	}
	return networks
}

// listenAddress accepts [HOST]:PORT, and nothing.
func listenAddress(s string) *fault {
	if s == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 ||
		strings.ContainsAny(host, " /") {
		return faultf("write an address such as \":9808\" or \"192.0.2.1:9808\"", "%s is not HOST:PORT", shown(s))
	}
	return nil
}

// consumerID accepts what Placement's columns external_id take.
func consumerID(s string) *fault {
	if s == "" || len(s) > 255 {
		return faultf("write "+idWords, "%s cannot be recorded as a project or user", shown(s))
	}
	return nil
}

func origin(s string) *fault {
	if s == "*" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" ||
		u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return faultf("write scheme, host and port only, such as \"https://dashboard.example\", or \"*\"",
			"%s is not an origin", shown(s))
	}
	return nil
}

// matching accepts what matches a pattern.
func matching(pattern, what, hint string) func(string) *fault {
	matches := regexp.MustCompile(pattern).MatchString
	return func(s string) *fault {
		if !matches(s) {
			return faultf(hint, "%s is not %s", shown(s), what)
		}
		return nil
	}
}

// oneOf accepts some values.
func oneOf(values []string, what string) func(string) *fault {
	return func(s string) *fault {
		if !slices.Contains(values, s) {
			return faultf("write "+quotedSeries(values, "or"), "%s is not %s", shown(s), what)
		}
		return nil
	}
}

func classRename(s string) *fault {
	former, present, _ := strings.Cut(s, "=")
	if err := errors.Join(providertree.ValidateClass(former), providertree.ValidateClass(present)); err != nil ||
		former == present {
		return faultf("write two names of resource classes, such as \"VCPU=PCPU\"", "%s is not OLD=NEW", shown(s))
	}
	return nil
}

var environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variableName accepts a variable for a plugin, except those by which the
// process would speak to systemd in the agent's name or load foreign code.
func variableName(s string) *fault {
	switch {
	case !environmentName.MatchString(s) || len(s) > 255:
		return faultf("write a name such as \"LIBVIRT_DEBUG\"", "%s is not the name of a variable", shown(s))
	case s == "NOTIFY_SOCKET", strings.HasPrefix(s, "WATCHDOG_"),
		strings.HasPrefix(s, "LISTEN_"), strings.HasPrefix(s, "LD_"),
		strings.HasPrefix(s, "PLUGIN_"), strings.HasPrefix(s, envPrefix):
		return faultf("remove it",
			"%s is not passed on to plugins: it belongs to the agent, to systemd or to the loader", s)
	}
	return nil
}

// ErrSecret is wrapped by every error of ReadSecret.
var ErrSecret = errors.New("secret not usable")

// Secret is a value that prints as nothing but its kind.
type Secret struct{ value string }

// Reveal is the value itself, for the one place that sends it.
func (s Secret) Reveal() string { return s.value }

// String hides the value.
func (s Secret) String() string { return "(secret)" }

// GoString hides the value from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the value from JSON and logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReadSecret reads the file of a secret; see files.ReadSecret.
func ReadSecret(path string) (Secret, error) {
	value, err := files.ReadSecret(path)
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	return Secret{value}, nil
}
