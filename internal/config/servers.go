// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// Server is the section [server]: bounds for the clients of all services of a
// process.
type Server struct {
	MaxConnections           int           // Zero is derived from the limit of open files.
	MaxConnectionsPerAddress int           // Zero is a quarter of them.
	TrustedProxies           []string      // Addresses and networks of proxies whose X-Forwarded-For counts.
	ShutdownDelay            time.Duration // Zero: none.
}

func (s *Server) section() section {
	return section{"server", []Service{PlacementService, ComputeAPIService, CellService},
		"Limits for clients of all services of a process: Placement, the compute API, a cell. At\nthe limit, the " +
			"connection that has been idle longest is closed.",
		[]key{
			{"max_connections", restart, "Maximum number of connections. 0 means as many as the limit of open files " +
				"(LimitNOFILE)\nallows, at most 20000; a higher number than it allows has no effect.",
				number{at: &s.MaxConnections, max: 1_000_000}},
			{"max_connections_per_address", restart, "Maximum number of connections per IP address. 0 means a " +
				"quarter of max_connections.\nIt does not hold for trusted_proxies. Behind another load balancer, " +
				"all clients have its\naddress: set it to the value of max_connections.",
				number{at: &s.MaxConnectionsPerAddress, max: 1_000_000}},
			{"trusted_proxies", restart, "Addresses and networks of load balancers and proxies that set " +
				"X-Forwarded-For. For their requests, logs, audit\nrecords and bounds per address have the last " +
				"address of the header that is not of these.",
				list{at: &s.TrustedProxies,
					words: "an array of addresses and networks such as [\"192.0.2.10\", \"10.1.0.0/16\"]",
					check: proxyNetwork}},
			{"shutdown_delay", restart, "How long Placement still answers requests after it received the signal to " +
				"stop, while /readyz answers\n503, so that load balancers send requests elsewhere. Set it to two or " +
				"three intervals of their health checks.",
				span(&s.ShutdownDelay, 100*time.Millisecond, 15*time.Second, "it stops at once")},
		}}
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

func (k *Keystone) section() section {
	return section{"keystone", []Service{PlacementService, ComputeAPIService},
		"The Keystone that validates tokens for the bundled Placement server (--auth keystone) and the\ncompute API " +
			"(auth = \"keystone\"), and the service user for that, which needs the role service: with a password, or " +
			"with an\napplication credential.",
		[]key{
			{"auth_url", restart, "Address of Keystone.",
				text{at: &k.AuthURL, words: "a URL such as \"https://keystone.example:5000/v3\"", check: serviceURL}},
			{"username", restart, "Name of the service user.",
				text{at: &k.Username, def: "placement", words: "a name"}},
			{"user_domain_name", restart, "Domain of the service user.",
				text{at: &k.UserDomainName, def: "Default", words: "a name"}},
			{"project_name", restart, "Project of the service user.",
				text{at: &k.ProjectName, def: "service", words: "a name"}},
			{"project_domain_name", restart, "Domain of that project.",
				text{at: &k.ProjectDomainName, def: "Default", words: "a name"}},
			{"password_file", restart, "File of the service user's password, or the name of a credential.",
				secretText(&k.PasswordFile)},
			{"application_credential_id", restart,
				"Application credential to use instead of user, project and password.",
				text{at: &k.ApplicationCredentialID, words: "an identifier"}},
			{"application_credential_secret_file", restart, "File of its secret, or the name of a credential.",
				secretText(&k.ApplicationCredentialSecretFile)},
			caFile(&k.CAFile),
			{"www_authenticate_uri", restart, "URL of Keystone in responses to clients whose token is rejected. " +
				"Empty means auth_url,\nwhich clients may be unable to reach.", urlText(&k.WWWAuthenticateURI)},
			{"timeout", restart, "Timeout of requests to Keystone.",
				duration{at: &k.Timeout, def: 10 * time.Second, min: 100 * time.Millisecond, max: 5 * time.Minute}},
			{"token_cache_time", restart, "How long a validated token is cached; a revoked token works until then.",
				duration{at: &k.TokenCacheTime, def: 5 * time.Minute, min: time.Second, max: time.Hour}},
		}}
}

// DenyList is the section [deny_list]: which hosts Placement, the compute API and cells refuse.
type DenyList struct {
	File   string        // Empty: none.
	URL    string        // Of the enrolment service that File is kept like; empty: File is an operator's.
	CAFile string        // The CAs to trust at URL instead of the system's.
	MaxAge time.Duration // Zero: defaultDenyListAge with URL, otherwise any; see AgeLimit.
}

func (d *DenyList) section() section {
	return section{"deny_list", []Service{PlacementService, ComputeAPIService, CellService},
		"Hosts that Placement, the compute API and cells refuse, whatever they show; see docs/identity.md.",
		[]key{
			{"file", restart, "File of the hosts, as `compute-agent ca revoke` writes it. A changed file is " +
				"reloaded. Empty means none, or with url\ndenied_hosts in agent.state_dir.", pathText(&d.File)},
			{"url", restart, "URL of the enrolment service ([enrolment] of the compute API) whose list is copied to " +
				"file every 15 s. While it cannot be\nreached, the last copy stays in effect, for max_age. For " +
				"Placement and cells; empty means that file is an operator's.",
				text{at: &d.URL, words: "a URL", check: secureURL}},
			{"ca_file", restart,
				"File of PEM certificates to trust at url instead of the system's. A changed file is reloaded.",
				pathText(&d.CAFile)},
			{"max_age", restart, "How old the list may be. While it is older, all hosts are refused. With url, its " +
				"age is the time since it was fetched, also before\na restart; without, that since its date, which " +
				"`compute-agent ca deny-list --renew` sets.",
				span(&d.MaxAge, time.Minute, 10*365*24*time.Hour, "a day with url, and any age without")},
		}}
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
