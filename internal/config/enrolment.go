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

// enrolment reports what cannot work about enrolment.
func (v *validator) enrolment() {
	client := v.cfg.EnrolmentClient
	for _, one := range []struct{ key, value string }{{"ca_file", client.CAFile},
		{"identity_file", client.IdentityFile}} {
		switch {
		case client.URL != "" && one.value == "":
			v.addProblem("enrolment_client.url", "is set without enrolment_client."+one.key, "set "+one.key+
				", as `compute-agent join` does")
		case client.URL == "" && one.value != "":
			v.noEffect("enrolment_client."+one.key, "while enrolment_client.url is empty", "set url")
		}
	}
	if dir := v.cfg.Enrolment.CADir; dir != "" && v.cfg.Agent.StateDir != "" &&
		filepath.Clean(dir) == filepath.Clean(v.cfg.Agent.StateDir) {
		v.addProblem("enrolment.ca_dir", "is the state directory of the agent, in which a host has its own ca.pem",
			"use a directory of its own for the CA")
	}
}
