// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Validate checks what no key can tell alone. Load has called it already; call
// it again after changing a Config by hand. Its error is a Problems.
func (c *Config) Validate() error {
	v := &validator{cfg: c}
	v.client()
	v.order("tracker.retry_backoff_min",
		c.Tracker.RetryBackoffMin, "tracker.retry_backoff_max", c.Tracker.RetryBackoffMax)
	v.order("plugins.backoff_min", c.Plugins.BackoffMin, "plugins.backoff_max", c.Plugins.BackoffMax)
	v.order("plugins.health_timeout", c.Plugins.HealthTimeout, "plugins.health_interval", c.Plugins.HealthInterval)
	v.drivers()
	v.order("placement_client.connect_timeout",
		c.PlacementClient.ConnectTimeout, "placement_client.timeout", c.PlacementClient.Timeout)
	v.sockets()
	v.cors()
	v.keyPair("placement_tls.", c.PlacementTLS.CertFile, c.PlacementTLS.KeyFile)
	v.clientCA("placement_tls", "client_ca_file", c.PlacementTLS.CertFile, c.PlacementTLS.ClientCAFile)
	v.clientCA("placement_tls", "host_ca_file", c.PlacementTLS.CertFile, c.PlacementTLS.HostCAFile)
	if c.DenyList.CAFile != "" && c.DenyList.URL == "" {
		v.noEffect("deny_list.ca_file", "while deny_list.url is empty", "set url")
	}
	if c.DenyList.MaxAge != 0 && c.DenyList.File == "" {
		v.noEffect("deny_list.max_age", "while deny_list.file and deny_list.url are empty", "set one of them")
	}
	v.keystone()
	v.cells()
	v.enrolment()
	return v.problems.err()
}

type validator struct {
	cfg      *Config
	problems Problems
}

func (v *validator) addProblem(key, what, hint string) {
	v.problems = append(v.problems, faultf(hint, "%s", what).at(key, v.cfg.sources[key].orDefault("")))
}

// noEffect reports a key that is set although others are such that it has no effect.
func (v *validator) noEffect(key, because, hint string) {
	_, name, _ := strings.Cut(key, ".")
	v.addProblem(key, "has no effect "+because, hint+", or remove "+name)
}

// useless reports a key that was written and has no effect.
func (v *validator) useless(key, because, hint string) {
	if v.written(key) {
		v.noEffect(key, because, hint)
	}
}

func (v *validator) client() {
	p := v.cfg.PlacementClient
	switch {
	case p.Auth == AuthToken && p.TokenFile == "":
		v.addProblem("placement_client.auth", "is \"token\", but placement_client.token_file is empty",
			"set token_file to the file that holds the token")
	case (p.Auth == AuthCertificate || p.Auth == AuthNoauth) && p.TokenFile != "":
		v.addProblem("placement_client.token_file",
			"is set, but placement_client.auth is "+quote(p.Auth)+": the token would never be sent",
			"set auth = \"token\", or remove token_file")
	}
	v.clientKeystone()
	if p.Auth == AuthCertificate {
		v.certificate()
		return
	}
	v.keyPair("placement_client.", p.CertFile, p.KeyFile)
}

// certificate reports what is missing for a client that is known by its certificate.
func (v *validator) certificate() {
	p := v.cfg.PlacementClient
	for _, file := range []struct{ key, value, what string }{
		{"cert_file", p.CertFile, "the host's certificate"},
		{"key_file", p.KeyFile, "the key of the host's certificate"},
		{"ca_file", p.CAFile, "the CA of Placement's certificate"},
	} {
		if file.value == "" {
			v.addProblem("placement_client."+file.key, "is empty, but placement_client.auth is \"certificate\"",
				"set it to the file of "+file.what+
					"; `compute-agent join` enrols a host and writes these files, see docs/identity.md")
		}
	}
	if strings.HasPrefix(p.URL, "http://") {
		v.addProblem("placement_client.url", "is without TLS, but placement_client.auth is \"certificate\"",
			"use the https:// address of Placement; a certificate can be shown by TLS only")
	}
}

// keyPair reports a certificate without its key, or the other way round.
func (v *validator) keyPair(prefix, cert, key string) {
	certKey, keyKey := prefix+"cert_file", prefix+"key_file"
	switch {
	case cert != "" && key == "":
		v.addProblem(certKey, "is set without "+keyKey, "set "+keyKey+" to the file of the certificate's key")
	case cert == "" && key != "":
		v.addProblem(keyKey, "is set without "+certKey, "set "+certKey+" to the file of the key's certificate")
	}
}

// cors reports options that were written and have no effect.
func (v *validator) cors() {
	if len(v.cfg.CORS.AllowedOrigin) > 0 {
		return
	}
	for _, k := range v.cfg.section("cors").keys {
		v.useless("cors."+k.Name, "while cors.allowed_origin is empty", "set allowed_origin")
	}
}

// written reports whether the key is set to another value than its default.
func (v *validator) written(key string) bool {
	if _, set := v.cfg.sources[key]; !set {
		return false
	}
	section, name, _ := strings.Cut(key, ".")
	now, def := named(v.cfg.section(section).keys, name), named(new(Config).section(section).keys, name)
	def.reset()
	return def.format() != now.format()
}

// keystone reports credentials that are given in two ways, or by half. That none are given is
// reported when they are needed.
func (v *validator) keystone() {
	k := v.cfg.Keystone
	switch {
	case k.ApplicationCredentialID != "" && k.PasswordFile != "":
		v.addProblem("keystone.application_credential_id",
			"is set together with keystone.password_file", "remove one of them")
	case k.ApplicationCredentialID != "" && k.ApplicationCredentialSecretFile == "":
		v.addProblem("keystone.application_credential_id",
			"is set without keystone.application_credential_secret_file", "set it to the file of the secret")
	case k.ApplicationCredentialID == "" && k.ApplicationCredentialSecretFile != "":
		v.addProblem("keystone.application_credential_secret_file", "is set without keystone.application_credential_id",
			"set it to the id of the application credential")
	}
}

// drivers reports bounds of a driver's own tables that do not go together with
// each other, or with those of [plugins].
func (v *validator) drivers() {
	for _, name := range sortedKeys(v.cfg.Drivers) {
		t, r := v.cfg.Process(name)
		own := v.cfg.Drivers[name]
		if own.Restart.BackoffMin != 0 || own.Restart.BackoffMax != 0 {
			v.order(driverPath(name, "restart.backoff_min"), r.BackoffMin,
				driverPath(name, "restart.backoff_max"), r.BackoffMax)
		}
		if own.Timeouts.Health != 0 || own.Restart.HealthInterval != 0 {
			v.order(driverPath(name, "timeouts.health"),
				t.Health, driverPath(name, "restart.health_interval"), r.HealthInterval)
		}
	}
}

// firstSet is the first of two keys if it is set, and otherwise the second.
func (v *validator) firstSet(first, second string) string {
	if _, set := v.cfg.sources[first]; set {
		return first
	}
	return second
}

// order reports a lower bound that lies above its upper bound, at whichever of
// the two was written.
func (v *validator) order(lower string, low time.Duration, upper string, high time.Duration) {
	if low <= high {
		return
	}
	v.addProblem(v.firstSet(lower, upper),
		fmt.Sprintf("%s (%s) is longer than %s (%s)", lower, formatDuration(low), upper,
			formatDuration(high)), "make "+lower+" the shorter one")
}

// sockets reports a runtime directory whose sockets would not fit.
func (v *validator) sockets() {
	dir := v.cfg.Agent.RuntimeDir
	if dir == "" {
		return // Load has said why.
	}
	longest := filepath.Join(dir, longestSocket)
	if len(longest) <= maxSocketPath {
		return
	}
	v.addProblem("agent.runtime_dir",
		fmt.Sprintf("%s is %d bytes long; the sockets below it would be %d, and Linux allows %d for the path "+
			"of a socket", dir, len(dir), len(longest), maxSocketPath),
		fmt.Sprintf("choose a directory of at most %d bytes, such as /run/compute-agent",
			maxSocketPath-len(longestSocket)-1))
}
