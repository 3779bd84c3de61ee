// SPDX-License-Identifier: Apache-2.0

package config

import (
	"iter"
	"slices"
	"strings"
	"time"
)

// key declares one key of a section, whose field is that of a certain [Config] or [Driver].
type key struct {
	name string
	live bool // SIGHUP applies a change; otherwise the agent must be restarted.
	doc  string
	field
}

// section declares one table of the file.
type section struct {
	name    string
	readers []Service
	doc     string
	keys    []key
}

const (
	live    = true
	restart = false
)

// sections declares every section but [drivers.NAME], in the order in which Defaults writes them.
func (c *Config) sections() []section {
	return slices.Concat(c.placementSections(), c.cellSections())
}

// placementSections declares the sections of the agent, of Placement, and of all services.
func (c *Config) placementSections() []section {
	return []section{c.Agent.section(), c.PlacementClient.section(), c.Tracker.section(), c.Reshape.section(),
		c.Plugins.section(), c.Log.section(), c.Metrics.section(), c.Tracing.section(), c.Placement.section(),
		c.PlacementTLS.section(), c.DenyList.section(), c.PlacementMetrics.section(), c.Server.section(),
		c.Keystone.section(), c.CORS.section(), c.Audit.section(), c.Policy.section()}
}

// cellSections declares the sections of cells and the compute API.
func (c *Config) cellSections() []section {
	return []section{c.CellClient.section(), c.Cell.section(), c.ComputeAPI.section(), c.Quota.section(),
		c.Scheduler.section(), c.Enrolment.section(), c.EnrolmentClient.section()}
}

// section is the section of that name, or nil.
func (c *Config) section(name string) *section {
	all := c.sections()
	if i := slices.IndexFunc(all, func(s section) bool { return s.name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// keys are those of all sections and drivers, by their whole names.
func (c *Config) keys() iter.Seq2[string, key] {
	return func(yield func(string, key) bool) {
		tables := c.sections()
		for _, name := range sortedKeys(c.Drivers) {
			tables = append(tables, section{name: dotted(driversSection, name), keys: c.Drivers[name].keys()})
		}
		for _, s := range tables {
			for _, k := range s.keys {
				if !yield(s.name+"."+k.name, k) {
					return
				}
			}
		}
	}
}

// named is the key of that name, or nil.
func named(keys []key, name string) *key {
	if i := slices.IndexFunc(keys, func(k key) bool { return k.name == name }); i >= 0 {
		return &keys[i]
	}
	return nil
}

// keysBelow are the keys of a table in a table: timeouts.start is start in the table timeouts.
func keysBelow(keys []key, table string) []key {
	var out []key
	for _, k := range keys {
		if name, below := strings.CutPrefix(k.name, table+"."); below {
			k.name = name
			out = append(out, k)
		}
	}
	return out
}

func names(keys []key) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.name
	}
	return out
}

// Keys that several sections have.

func tokenFile(at *string) key {
	return key{"token_file", restart, "File that holds the token, or the bare name of a systemd credential.",
		secretText(at)}
}

func caFile(at *string) key {
	return key{"ca_file", restart,
		"File of PEM certificates to trust instead of the system's, or the name of a credential.", secretText(at)}
}

// keyFile is the key that belongs to the certificate in PREFIXcert_file.
func keyFile(prefix string, at *string) key {
	return key{prefix + "key_file", restart,
		"File of the key of " + prefix + "cert_file, in PEM, or the name of a credential.", secretText(at)}
}

func metricsListen(at *string) key {
	return key{"metrics_listen", restart, "Address to serve /metrics, /healthz and /readyz on in addition to the " +
		"admin socket, by plain HTTP without authentication. The default host\nis 127.0.0.1. Empty means none.",
		listenText(at)}
}

// Fields that several keys have. Empty texts pass.

func urlText(at *string) text    { return text{at: at, words: "a URL", check: serviceURL} }
func pathText(at *string) text   { return text{at: at, words: "an absolute path", check: absolutePath} }
func listenText(at *string) text { return text{at: at, words: listenWords, check: listenAddress} }

func databaseText(at *string) text { return text{at: at, words: databaseWords, check: databaseDSN} }

// secretFile is a text that holds the path of a file, or the name of a systemd credential, which
// Load turns into a path.
type secretFile struct{ text }

func secretText(at *string) secretFile {
	return secretFile{text{at: at, words: secretWords, check: secretPath}}
}

// span is a duration that is "0s" by default, which means what zero says.
func span(at *time.Duration, least, most time.Duration, zero string) duration {
	return duration{at: at, min: least, max: most, zero: zero}
}

// Service is a process that reads the configuration.
type Service string

// The services, by what people call them.
const (
	AgentService      Service = "the agent"
	PlacementService  Service = "Placement"
	ComputeAPIService Service = "the compute API"
	CellService       Service = "cells"
)

var (
	// allServices read a section that is about every process.
	allServices = []Service{AgentService, PlacementService, ComputeAPIService, CellService}
	// driversReaders read [drivers.NAME].
	driversReaders = []Service{AgentService}
)

// SectionsOf are the names of the sections that any of some services reads, sorted.
func SectionsOf(services ...Service) []string {
	var out []string
	for _, s := range append(new(Config).sections(), section{name: driversSection, readers: driversReaders}) {
		if slices.ContainsFunc(s.readers, func(s Service) bool { return slices.Contains(services, s) }) {
			out = append(out, s.name)
		}
	}
	slices.Sort(out)
	return out
}

// readBy lists the services that read a section.
func readBy(readers []Service) string {
	if len(readers) == len(allServices) {
		return "all services"
	}
	words := make([]string, len(readers))
	for i, s := range readers {
		words[i] = string(s)
	}
	return series(words, "and")
}
