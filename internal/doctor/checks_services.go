// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/systemd"
)

// agentUnits are the unit of the agent, which has checks of its own, and that of what it starts.
var agentUnits = []string{"compute-agent.service", "compute-agent-domain-capabilities.service"}

// Service is a service of the control plane on this machine: its unit and its configuration, nil
// if it has none that can be read.
type Service struct {
	systemd.UnitState
	Config *config.Config
	// ConfigErr is why its configuration cannot be used.
	ConfigErr error
	// Cells are the cells of a compute API that runs, as it reports them; CellsErr: it does not.
	Cells    []cells.CellState
	CellsErr error
}

// configFileOf is the file that the command of a unit names with --config, "" for the default.
func configFileOf(u systemd.UnitState) string { return flagOf(u, "--config") }

// overridesOf returns the keys of the configuration that flags in the command of a unit set.
func overridesOf(u systemd.UnitState) (out []config.Override) {
	keys := map[string]string{"--state-dir": "agent.state_dir", "--runtime-dir": "agent.runtime_dir"}
	switch (Service{UnitState: u}).service() {
	case config.PlacementService:
		keys["--database"] = "placement.database"
	case config.ComputeAPIService:
		keys["--database"], keys["--auth"], keys[tokensFlag] = "compute_api.database",
			"compute_api.auth", "compute_api.token_file"
		keys["--listen"] = "compute_api.listen"
	case config.CellService:
		keys["--database"], keys["--auth"], keys[tokensFlag] = "cell.database", "cell.auth", "cell.token_file"
		keys["--listen"] = "cell.listen"
	}
	for _, flag := range slices.Sorted(maps.Keys(keys)) {
		if value := flagOf(u, flag); value != "" {
			out = append(out, config.Override{Key: keys[flag], Value: value, Flag: flag})
		}
	}
	return out
}

// unit is the name of the service for people and in names of results, with that of its instance:
// "compute-agent-cell@cell1".
func (s Service) unit() string { return strings.TrimSuffix(s.Name, ".service") }

// flagOf is the value of a flag in the command of a unit, "" without it.
func flagOf(u systemd.UnitState, flag string) string {
	words := strings.Fields(u.Command)
	for i, word := range words {
		if value, found := strings.CutPrefix(word, flag+"="); found {
			return value
		}
		if word == flag && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// servers are the services of the control plane on this machine, without sockets.
func (e *Env) servers() (out []Service) {
	for _, s := range e.Services {
		if strings.HasSuffix(s.Name, ".service") && !slices.Contains(agentUnits, s.Name) {
			out = append(out, s)
		}
	}
	return out
}

// withoutAgent reports whether this machine has services of the control plane, and no agent.
func (e *Env) withoutAgent() bool {
	return len(e.servers()) > 0 && !HasAgent(e.Services)
}

// HasAgent reports whether the agent is one of the units of a machine.
func HasAgent(services []Service) bool {
	return slices.ContainsFunc(services, func(s Service) bool { return s.Name == agentUnits[0] })
}

// ControlPlane is the state of the services of the control plane on a machine, the worst first;
// none without any.
func ControlPlane(services []Service) []Result {
	e := &Env{Services: services, Self: os.Geteuid(), Stat: statFile, Now: time.Now}
	if len(e.servers()) == 0 {
		return nil
	}
	out := append(checkCells(context.Background(), e), checkServices(context.Background(), e)...)
	slices.SortStableFunc(out, func(a, b Result) int { return cmp.Compare(b.Severity.rank(), a.Severity.rank()) })
	return out
}

// checkCells looks at which cells answer the compute API of this machine, if it runs.
func checkCells(_ context.Context, e *Env) (out []Result) {
	for _, s := range e.Services {
		if s.CellsErr != nil {
			out = append(out, Result{Name: "cells", Title: "Cells", Severity: Skipped, Found: s.CellsErr.Error()})
			continue
		}
		for _, c := range s.Cells {
			if !c.Up {
				out = append(out, e.cell(c))
			}
		}
		if len(s.Cells) > 0 && len(out) == 0 {
			out = append(out, Result{Name: "cells", Title: "Cells", Severity: OK,
				Found: textutil.Count(len(s.Cells), "cell") + ", all answer the compute API"})
		}
	}
	return out
}

// cell is the result for a cell that does not answer the compute API.
func (e *Env) cell(c cells.CellState) Result {
	unit := "compute-agent-cell@" + c.Name + ".service"
	fix := e.command("systemctl status %s", unit)
	if !slices.ContainsFunc(e.Services, func(s Service) bool { return s.Name == unit }) {
		fix += "   # on the machine of " + c.URL
	}
	why := "Its servers are shown as UNKNOWN, and cannot be changed; no new server goes there. Guests keep running."
	if c.UUID == apidb.Cell0UUID { // it has no hosts
		why = "Servers that no host takes stay in BUILD until it answers. Those that it has are shown as UNKNOWN, " +
			"and cannot be changed."
	}
	return Result{
		Name: "cells." + c.Name, Title: "Cell " + c.Name, Severity: Error,
		// not for how long: a watch prints what changes
		Found: fmt.Sprintf("down since %s: %s", c.Since.UTC().Format(time.RFC3339), c.Cause),
		Why:   why,
		Fix:   fix,
	}
}

// checkServices looks at the services of the control plane that are enabled here or run, if any.
func checkServices(_ context.Context, e *Env) (out []Result) {
	for _, s := range e.servers() {
		r := e.unitResult(s)
		r.Name, r.Title = "service."+s.unit(), s.unit()
		out = append(out, r)
		if s.ConfigErr != nil {
			r = e.misconfigured(s)
			r.Name, r.Title = "service."+s.unit()+".config", s.unit()
			out = append(out, r)
		}
	}
	return out
}

// misconfigured is the result for a service whose configuration cannot be used. What it says is not
// repeated where another user can have put another file there.
func (e *Env) misconfigured(s Service) Result {
	file := cmp.Or(configFileOf(s.UnitState), config.DefaultFile)
	if errors.Is(s.ConfigErr, fs.ErrPermission) && e.Self != 0 {
		return Result{Severity: Skipped, Found: "its configuration " + file +
			" cannot be read, nor the files and databases be checked that it names; run this command as root"}
	}
	if strings.Contains(s.Command, "$") {
		return Result{
			Severity: Skipped,
			Found: "its configuration " + file +
				" cannot be used without the variables in the command of its unit; the files and databases that it " +
				"names are not checked",
		}
	}
	found := "its configuration " + file + " cannot be used"
	if e.foreign(file) == "" {
		found += ": " + firstProblem(s.ConfigErr)
	}
	severity, why := Error, "The service does not start with it."
	if s.Active == "active" {
		severity, why = Warning, "The service runs: its unit sets variables, or the next start fails."
	}
	return Result{
		Severity: severity, Found: found, Why: why +
			" The files, deny list and databases that it names are not checked.",
		Fix: e.command("compute-agent config check --config %s", file),
	}
}

// manyRestarts is how often systemd may have restarted a service that runs before it is a warning.
const manyRestarts = 5

func (e *Env) unitResult(s Service) Result {
	why := "Its clients get no answer."
	if strings.Contains(s.Name, "-cell@") {
		why = "Servers of this cell are shown as UNKNOWN, and cannot be changed. Guests keep running."
	}
	look := e.command("journalctl --unit %s --lines 20 --output cat", s.Name)
	socket := strings.TrimSuffix(s.Name, ".service") + ".socket"
	listening := slices.ContainsFunc(e.Services,
		func(other Service) bool { return other.Name == socket && other.Active == "active" })
	result := func(severity Severity, found, why, fix string) Result {
		return Result{Severity: severity, Found: found, Why: why, Fix: fix}
	}
	switch {
	case s.Sub == "auto-restart" || s.Active != "active" && s.Restarts >= manyRestarts:
		return result(Error, fmt.Sprintf("it ends again and again: %s, restarted %d times",
			ended(s.UnitState), s.Restarts), why, look)
	case s.Active == "failed":
		return result(Error, "it has failed: "+ended(s.UnitState), why, look+"   # then "+
			e.command("systemctl restart %s", s.Name))
	case s.Active == "active" && s.Restarts >= manyRestarts:
		return result(Warning, fmt.Sprintf("it runs, and was restarted %d times", s.Restarts),
			"It ends from time to time: "+why, look)
	case s.Active == "active" && !s.Enabled() && !listening:
		return result(Warning, "it runs, and is not enabled", "It does not start with this machine.",
			e.command("systemctl enable %s", s.Name))
	case s.Active == "active":
		return result(OK, "it runs", "", "")
	case listening:
		return result(OK, "it starts with the first request: "+socket+" listens", "", "")
	case s.Active == "activating", s.Active == "reloading":
		return result(Warning, "it is "+s.Active, why, look)
	}
	return result(Error, "it is enabled, and does not run", why, e.command("systemctl start %s", s.Name))
}

// ended describes how the main process of a unit ended.
func ended(u systemd.UnitState) string {
	switch {
	case u.Result == "exit-code" && u.Exit == 78:
		return "its configuration is invalid"
	case u.Result == "exit-code" && u.Exit == 3:
		return "it refused to start, to protect data"
	case u.Result == "exit-code":
		return fmt.Sprintf("exit code %d", u.Exit)
	case u.Result == "signal", u.Result == "core-dump":
		return fmt.Sprintf("signal %d", u.Exit)
	}
	return cmp.Or(u.Result, "unknown result")
}

// soon is how long before its end a certificate is a warning. Services and CAs do not renew theirs.
const soon = 14 * 24 * time.Hour

// expiring are the keys of certificates that end with the service's connections. Bundles of many
// CAs have some that have ended.
var expiring = []string{
	"placement_tls.cert_file", "placement_tls.client_ca_file", "placement_tls.host_ca_file",
	"compute_api.cert_file", "compute_api.client_ca_file", "compute_api.cell_cert_file", "compute_api.cell_ca_file",
	"enrolment.ca_dir", "cell.cert_file", "cell.peer_ca_file",
}

// checkCertificates looks at how long the certificates that services show and trust are valid, if
// there are any. Those that are missing are checkFiles' affair.
func checkCertificates(_ context.Context, e *Env) (out []Result) {
	seen := map[string]bool{}
	for _, s := range e.servers() {
		for _, f := range s.files() {
			if f.Key == "enrolment.ca_dir" {
				f.Path = filepath.Join(filepath.Dir(f.Path), pki.CACertificateFile)
			}
			if _, err := e.stat(f.Path); os.IsNotExist(err) || seen[f.Path] || !slices.Contains(expiring, f.Key) {
				continue
			}
			seen[f.Path] = true
			out = append(out, e.certificate(s, f.Key, f.Path)...)
		}
	}
	if len(out) == 0 && len(seen) > 0 {
		return pass("%d files of the services, none ends within %d days", len(seen), int(soon.Hours()/24))
	}
	return out
}

// certificate is the result for a file that a service uses: none if all is well.
func (e *Env) certificate(s Service, key, path string) []Result {
	named := func(severity Severity, found, why, fix string) []Result {
		return []Result{{Name: "certificates." + s.unit() + "." + key, Title: "Certificate", Severity: severity,
			Found: found, Why: why, Fix: fix}}
	}
	as, err := e.forUser(s)
	if err != nil {
		return named(Skipped, err.Error(), "", "")
	}
	if r := as.unread(path); r != nil {
		return named(Skipped, r.Found, "", "")
	}
	var all []*x509.Certificate
	read := func() {
		var own files.Content
		if own, err = files.Read(e.path(path)); err == nil {
			all, err = pki.Certificates(own.Data, path)
		}
	}
	if strings.HasPrefix(path, credentialsDir) {
		read()
	} else if notRead := as.reading(read); notRead != nil {
		return named(Skipped, path+" cannot be read: "+notRead.Error(), "", "")
	}
	switch {
	case errors.Is(err, fs.ErrPermission) && e.Self == 0:
		return nil // checkFiles has it
	case errors.Is(err, fs.ErrPermission):
		return named(Skipped, path+" cannot be read; run this command as root", "", "")
	case errors.Is(err, files.ErrUnreadable):
		return named(Skipped, strings.ReplaceAll(err.Error(), e.Root, ""), "", "")
	case err != nil:
		return named(Error, fmt.Sprintf("%s of %s: %v", key, s.Name, err), noStart, "ls -l "+path)
	}
	first := slices.MinFunc(all, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	found := fmt.Sprintf("%s of %s, %s, ends at %s", key, s.Name,
		cmp.Or(first.Subject.CommonName, "serial number "+first.SerialNumber.String()),
		first.NotAfter.UTC().Format(time.RFC3339))
	fix := e.command("openssl x509 -noout -subject -enddate -in %s", path) +
		"   # replace it; the services read it again by themselves"
	switch left := first.NotAfter.Sub(e.Now()); {
	case left < 0:
		return named(Error, strings.Replace(found, "ends", "ended", 1),
			"Clients refuse the connection, or are refused.", fix)
	case left < soon:
		return named(Warning, found, "From then on clients refuse the connection, or are refused.", fix)
	}
	return nil
}
