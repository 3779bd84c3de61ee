// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"time"
)

// Server is the section [server]: bounds for the clients of all services of a
// process.
type Server struct {
	MaxConnections           int           // Zero is derived from the limit of open files.
	MaxConnectionsPerAddress int           // Zero is a quarter of them.
	TrustedProxies           []string      // Addresses and networks of proxies whose X-Forwarded-For counts.
	ShutdownDelay            time.Duration // Zero: none.
}

// Keystone is the section [keystone]: where the bundled Placement server asks
// about tokens, with --auth keystone, and as whom.
type Keystone struct {
	AuthURL                         string
	Username                        string
	UserDomainName                  string
	ProjectName                     string
	ProjectDomainName               string
	PasswordFile                    string
	ApplicationCredentialID         string
	ApplicationCredentialSecretFile string
	CAFile                          string
	WWWAuthenticateURI              string // Empty is AuthURL.
	Timeout                         time.Duration
	TokenCacheTime                  time.Duration
}

// DenyList is the section [deny_list]: which hosts Placement, the compute API and cells refuse.
type DenyList struct {
	File   string        // Empty: none.
	URL    string        // Of the enrolment service that File is kept like; empty: File is an operator's.
	CAFile string        // The CAs to trust at URL instead of the system's.
	MaxAge time.Duration // Zero: defaultDenyListAge with URL, otherwise any; see AgeLimit.
}

// defaultDenyListAge is about as long as hosts have certificates while they cannot renew them.
const defaultDenyListAge = 24 * time.Hour

// AgeLimit is how old the list may be for hosts to be let in; zero: as old as it is.
func (d DenyList) AgeLimit() time.Duration {
	if d.MaxAge == 0 && d.URL != "" {
		return defaultDenyListAge
	}
	return d.MaxAge
}

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
