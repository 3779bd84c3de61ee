// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Enrolment is the section [enrolment]: the service of the compute API's process that gives hosts
// their certificates.
type Enrolment struct {
	Listen              string   // HOST:PORT; empty: none.
	URL                 string   // Empty: made of the first name and the port.
	Names               []string // Empty: the name of this machine.
	CADir               string   // Empty: the directory of systemd credentials.
	CertificateLifetime time.Duration
	RenewalGrace        time.Duration
	PlacementURL        string
	PlacementCAFile     string
}

func (e *Enrolment) section() section {
	return section{"enrolment", []Service{ComputeAPIService},
		"The enrolment service of the compute API's process: hosts join with a one-time token, get a certificate, " +
			"and renew it.",
		[]key{
			{"listen", restart, "Address of the service, by TLS 1.3, such as \"0.0.0.0:8775\". Empty means none.",
				listenText(&e.Listen)},
			{"url", restart,
				"Address of the service for hosts. Empty means https://, the first of names, and the port of\nlisten.",
				text{at: &e.URL, words: "a URL such as \"https://api.example:8775\"", check: secureURL}},
			{"names", restart, "Names and IP addresses by which hosts reach the service: those of its own " +
				"certificate, which\nit makes itself. Empty means the name of the machine.",
				list{at: &e.Names, words: "an array of names and addresses"}},
			{"ca_dir", restart, "Directory of the CA (`compute-agent ca init`): ca.key and ca.pem. Empty means the " +
				"directory of\nsystemd credentials of these names.", pathText(&e.CADir)},
			{"certificate_lifetime", restart,
				"How long the certificates of hosts are valid. Agents renew them at a third of it.",
				duration{at: &e.CertificateLifetime, def: 24 * time.Hour, min: time.Second, max: 90 * 24 * time.Hour}},
			{"renewal_grace", restart, "How long after a certificate expired it can still be renewed, for hosts that " +
				"were switched off.\nUntil then it is good for nothing else.",
				duration{at: &e.RenewalGrace, def: 30 * 24 * time.Hour, min: time.Second, max: 365 * 24 * time.Hour,
					zero: "never: such a host joins again with a new token"}},
			{"placement_url", restart, "Address of Placement that joined hosts use.", urlText(&e.PlacementURL)},
			{"placement_ca_file", restart, "File of the PEM certificates that joined hosts trust at Placement, or " +
				"the name of a credential.\nEmpty means the CA of the hosts.", secretText(&e.PlacementCAFile)},
		}}
}

// CADirectory returns the directory of the CA: by default that of the credentials which systemd
// passes.
func (e Enrolment) CADirectory() string { return cmp.Or(e.CADir, os.Getenv("CREDENTIALS_DIRECTORY")) }

// ServiceNames returns the names by which hosts reach the service.
func (e Enrolment) ServiceNames() ([]string, error) {
	if len(e.Names) > 0 {
		return e.Names, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("the name of this machine: %w; set enrolment.names", err)
	}
	return []string{name}, nil
}

// Address returns the URL of the service for hosts. [ErrInvalid] if no host can join.
func (e Enrolment) Address() (string, error) {
	if e.URL != "" {
		return e.URL, nil
	}
	if e.Listen == "" {
		return "", fmt.Errorf("%w: enrolment.listen is empty, so that no host can join; set it, and enrolment.ca_dir, "+
			"and restart the compute API", ErrInvalid)
	}
	names, err := e.ServiceNames()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(e.Listen)
	return "https://" + net.JoinHostPort(names[0], port), err
}

// EnrolmentClient is the section [enrolment_client]: where the agent renews its certificate.
type EnrolmentClient struct {
	URL          string // Empty: the agent renews nothing.
	CAFile       string
	IdentityFile string
}

func (e *EnrolmentClient) section() section {
	return section{"enrolment_client", []Service{AgentService},
		"Where the agent renews the certificate of this host. `compute-agent join` writes this section.",
		[]key{
			{"url", restart, "Address of the enrolment service. Empty means that the agent renews no certificate.",
				text{at: &e.URL, words: "a URL such as \"https://api.example:8775\"", check: secureURL}},
			{"ca_file", restart, "File of the PEM certificates to trust there.", pathText(&e.CAFile)},
			{"identity_file", restart, "File of the host's key and certificate, which the agent replaces.",
				pathText(&e.IdentityFile)},
		}}
}

// enrolment reports what cannot work about enrolment.
func (v *validator) enrolment() {
	client := v.cfg.EnrolmentClient
	for _, one := range []struct{ key, value string }{{"ca_file", client.CAFile},
		{"identity_file", client.IdentityFile}} {
		switch {
		case client.URL != "" && one.value == "":
			v.bad("enrolment_client.url", "is set without enrolment_client."+one.key, "set "+one.key+
				", as `compute-agent join` does")
		case client.URL == "" && one.value != "":
			v.noEffect("enrolment_client."+one.key, "while enrolment_client.url is empty", "set url")
		}
	}
	if dir := v.cfg.Enrolment.CADir; dir != "" && v.cfg.Agent.StateDir != "" &&
		filepath.Clean(dir) == filepath.Clean(v.cfg.Agent.StateDir) {
		v.bad("enrolment.ca_dir", "is the state directory of the agent, in which a host has its own ca.pem",
			"use a directory of its own for the CA")
	}
}
