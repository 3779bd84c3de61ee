// SPDX-License-Identifier: Apache-2.0

package config

import "path/filepath"

// Audit is the section [audit]: who changed what, kept by Placement, the compute API and cells.
type Audit struct {
	File     string // AuditNone turns it off; empty is DefaultAuditFile in the state directory.
	Journal  bool
	MaxSize  int // MiB.
	Keep     int
	Sync     bool
	Required bool
}

// AuditNone is the value of Audit.File that turns the file off.
const AuditNone = "none"

// DefaultAuditFile is the name of the file in the state directory.
const DefaultAuditFile = "audit.log"

// AuditFile is the path of the audit log's file; "" for none.
func (c *Config) AuditFile() string {
	switch c.Audit.File {
	case AuditNone:
		return ""
	case "":
		return filepath.Join(c.Agent.StateDir, DefaultAuditFile)
	}
	return c.Audit.File
}

func auditFile(s string) *fault {
	if s == AuditNone {
		return nil
	}
	return absolutePath(s)
}

func (a *Audit) section() section {
	return section{"audit", []Service{PlacementService, ComputeAPIService, CellService},
		"The audit log of Placement, the compute API and cells: who changed what, from what to what.\n`compute-agent " +
			"audit` searches it.",
		[]key{
			{"file", restart, "File to append records to, one JSON object per line, readable by its owner only. " +
				"Services can share it. Empty\nmeans audit.log in agent.state_dir, and \"none\" no file.",
				text{at: &a.File, words: "an absolute path, or \"none\"", check: auditFile}},
			{"journal", restart,
				"Whether records are also sent to systemd's journal, with fields such as CONSUMER= and PROVIDER=.",
				toggle{&a.Journal, false}},
			{"max_size", restart,
				"Size in MiB at which the file is renamed to FILE.1, and FILE.1 to FILE.2, and so on.",
				number{at: &a.MaxSize, def: 100, min: 1, max: 1 << 20}},
			{"keep", restart, "Number of renamed files that are kept.", number{at: &a.Keep, def: 10, max: 10_000}},
			{"sync", restart, "Whether each record is on the disk before a request is answered, at the cost of a " +
				"flush of the disk. Otherwise records of\nthe last seconds can be lost if the machine fails, but not " +
				"if the process does.", toggle{&a.Sync, false}},
			{"required", restart, "Whether writes are refused with 503 while records cannot be written. Otherwise " +
				"writes go on, and records that cannot be\nwritten later either are lost and counted.",
				toggle{&a.Required, false}},
		}}
}
