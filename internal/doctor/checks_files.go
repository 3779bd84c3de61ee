// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
)

const (
	noStart = "The service does not start, and one that runs keeps the former file."
	noLogin = "The service has nothing to log in with where it needs the file."
	// credentialsDir is where systemd passes credentials to units, as long as they run. It makes
	// them readable for their users.
	credentialsDir = "/run/credentials/"
)

// service is which of the services it is, as the configuration calls it; "" for other units.
func (s Service) service() config.Service {
	switch {
	case s.Name == computeAPIUnit:
		return config.ComputeAPIService
	case strings.HasPrefix(s.Name, "compute-agent-cell@"):
		return config.CellService
	case s.Name == "compute-agent-placement.service":
		return config.PlacementService
	}
	return ""
}

// tokensFlag and caKey are the keys of files that no key of the configuration names by its path.
const (
	tokensFlag = "--token-file"
	caKey      = "enrolment.ca_dir"
)

// auth is how the clients of a service authenticate.
func (s Service) auth() string {
	switch s.service() {
	case config.ComputeAPIService:
		return s.Config.ComputeAPI.Auth
	case config.PlacementService:
		return flagOf(s.UnitState, "--auth")
	}
	return ""
}

// files returns the files that the service reads, except its configuration.
func (s Service) files() []config.NamedFile {
	if s.Config == nil || s.service() == "" {
		return nil
	}
	credentials := credentialsDir + s.Name
	enrols := s.Config.Enrolment.Listen != ""
	out := slices.DeleteFunc(s.Config.ServiceFiles(s.service(), credentials), func(f config.NamedFile) bool {
		section, _, _ := strings.Cut(f.Key, ".")
		return section == "keystone" && s.auth() != config.AuthKeystone || section == "enrolment" && !enrols
	})
	if path := flagOf(s.UnitState, tokensFlag); path != "" && s.service() == config.PlacementService &&
		s.auth() == config.AuthToken {
		out = append(out, config.NamedFile{Key: tokensFlag, Path: path}) // of the others it is in their configuration
	}
	if s.service() == config.ComputeAPIService && enrols {
		out = append(out, config.NamedFile{Key: caKey,
			Path: filepath.Join(cmp.Or(s.Config.Enrolment.CADir, credentials), pki.CAKeyFile)})
	}
	return out
}

// checkFiles looks at whether services can use the tokens, passwords, keys, certificates and rules
// that they read: as their users, by the modes and owners that they accept.
func checkFiles(_ context.Context, e *Env) (out []Result) {
	checked := 0
	for _, s := range e.servers() {
		as, err := e.forUser(s)
		if err != nil {
			out = append(out,
				Result{Name: "files." + s.unit(), Title: "Files of services", Severity: Skipped, Found: err.Error()})
			continue
		}
		all := s.files()
		for _, f := range all {
			if f.Key == "deny_list.file" { // checkDenyLists has them
				continue
			}
			checked++
			if r := (fileCheck{as, s, all}).problem(f); r != nil {
				r.Name, r.Title = "files."+s.unit()+"."+strings.TrimLeft(f.Key, "-"), "File"
				r.Found = fmt.Sprintf("%s of %s: %s", f.Key, s.Name, strings.ReplaceAll(r.Found, e.Root, ""))
				out = append(out, *r)
			}
		}
	}
	if len(out) == 0 && checked > 0 {
		return pass("%s, all usable", textutil.Count(checked, "file"))
	}
	return out
}

// forUser is the Env for the user of a service.
func (e *Env) forUser(s Service) (*Env, error) {
	as := *e
	as.Agent = Account{Name: "root"}
	if s.User == "" || s.User == "root" {
		return &as, nil
	}
	var err error
	if as.Agent, err = e.LookupUser(s.User); err != nil {
		return nil, fmt.Errorf("the user of %s: %w", s.Name, err)
	}
	as.Agent.ReadsAll = s.ReadsAll
	for _, name := range s.Groups {
		gid, err := e.LookupGroup(name)
		if err != nil {
			return nil, fmt.Errorf("the groups of %s: %w", s.Name, err)
		}
		as.Agent.GIDs = append(slices.Clip(as.Agent.GIDs), gid)
	}
	return &as, nil
}

// fileCheck checks the files of one service. env is for its user.
type fileCheck struct {
	env     *Env
	service Service
	all     []config.NamedFile
}

// kind is what a file is for.
type kind int

const (
	readOnly  kind = iota // certificates and rules
	digests               // of the tokens of clients
	secret                // one line that the service shows
	serverKey             // of the certificate of a server
	clientKey             // of a certificate that the service shows to others
	authority             // the key of the CA
)

func kindOf(key string) kind {
	switch _, name, _ := strings.Cut(key, "."); {
	case key == tokensFlag, key == "cell.token_file", key == "compute_api.token_file":
		return digests
	case key == caKey:
		return authority
	case name == "database", name == "password_file", strings.HasSuffix(name, "secret_file"),
		strings.HasSuffix(name, "token_file"):
		return secret
	case name == "cell_key_file", key == "placement_client.key_file":
		return clientKey
	case strings.HasSuffix(name, "key_file"):
		return serverKey
	}
	return readOnly
}

// problem returns what keeps the service from using a file; nil if nothing does.
func (c fileCheck) problem(f config.NamedFile) *Result {
	e, kind, why := c.env, kindOf(f.Key), noStart
	if kind == secret {
		why = noLogin
	}
	failed := func(severity Severity, found, fix string) *Result {
		return &Result{Severity: severity, Found: found, Why: why, Fix: fix}
	}
	passed := strings.HasPrefix(f.Path, credentialsDir)
	if r := e.unread(f.Path); r != nil {
		return r
	}
	file, err := e.stat(f.Path)
	switch {
	case passed && os.IsNotExist(err): // the unit does not run
		return nil
	case os.IsPermission(err):
		return &Result{Severity: Skipped, Found: f.Path + " cannot be looked at; run this command as root"}
	case err != nil:
		return failed(Error, reason(err, f.Path), "ls -l "+f.Path)
	case !file.Mode.IsRegular():
		return failed(Error, f.Path+" is not a regular file", "ls -ld "+f.Path)
	}
	if r := e.readable(f.Path, file, c.service.Groups); r != nil && !passed {
		if r.Severity == Error {
			r.Why = why
		}
		return r
	}
	private := files.Private(f.Path, file.Mode) == nil
	owned := file.UID == 0 || file.UID == e.Agent.UID
	name := e.Agent.Name
	switch {
	case kind == readOnly && file.Mode.Perm()&0o002 != 0:
		return failed(Error, fmt.Sprintf("%s has mode %04o, so that all users can change it", f.Path, file.Mode.Perm()),
			e.change(f.Path, "chmod o-w %s", f.Path))
	case kind == readOnly:
		return nil
	case !private && kind == clientKey:
		why = "A process with the key can act as this service."
		return failed(Warning, openTo(f.Path, file), e.change(f.Path, "chmod g-w,o= %s", f.Path))
	case !private:
		return failed(Error, openTo(f.Path, file), e.change(f.Path, "chmod g-w,o= %s", f.Path))
	case !owned && (kind == digests || kind == authority):
		return failed(Error, fmt.Sprintf("%s belongs to user %d, which is neither root nor %s", f.Path, file.UID, name),
			e.change(f.Path, "chown root %s", f.Path))
	}
	if passed { // only root and systemd can have put it there
		err = c.content(kind, f)
	} else if notRead := e.reading(func() { err = c.content(kind, f) }); notRead != nil {
		return &Result{Severity: Skipped, Found: f.Path + " cannot be read: " + notRead.Error()}
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return &Result{Severity: Skipped, Found: f.Path + " cannot be read; run this command as root"}
	case err != nil:
		return failed(Error, err.Error(), e.change(f.Path, "editor %s", f.Path))
	}
	return nil
}

func openTo(path string, file File) string {
	return fmt.Sprintf("%s has mode %04o, so that other users can read or change it", path, file.Mode.Perm())
}

// readable is what keeps the user from reading a file, and what changes that; nil if nothing does.
func (e *Env) readable(path string, file File, groups []string) *Result {
	group := e.Agent.Name
	if len(groups) > 0 {
		group = groups[0]
	}
	if dir, blocked := e.blockedBy(path); blocked {
		return &Result{Severity: Error, Found: fmt.Sprintf("%s cannot enter %s", e.Agent.Name, dir),
			Fix: e.change(dir, "chgrp %s %s && chmod g+x %[2]s", group, dir)}
	}
	switch allowed, known := e.permits(path, file, 4); {
	case !known:
		return &Result{Severity: Skipped,
			Found: fmt.Sprintf(
				"%s has an access control list, which says whether %s can read it; run this command as root", path,
				e.Agent.Name)}
	case !allowed && e.Agent.ReadsAll:
		return &Result{Severity: Skipped, Found: e.byCapability(path)}
	case allowed:
		return nil
	}
	return &Result{
		Severity: Error,
		Found: fmt.Sprintf("%s cannot read %s, which belongs to user %d and group %d with mode %04o",
			e.Agent.Name, path, file.UID, file.GID, file.Mode.Perm()),
		Fix: e.change(path, "chgrp %s %s && chmod g+r %[2]s", group, path),
	}
}

// byCapability describes a file that only a capability of the service lets it read.
func (e *Env) byCapability(path string) string {
	return fmt.Sprintf("%s is closed to %s, whose service reads it by CAP_DAC_READ_SEARCH, and is not looked into",
		path, e.Agent.Name)
}

// content returns an error unless the service can use what a file has.
func (c fileCheck) content(kind kind, f config.NamedFile) error {
	path := c.env.path(f.Path)
	if kind == secret {
		_, err := files.ReadSecret(path)
		return err
	}
	own, err := files.Read(path)
	if err != nil {
		return err
	}
	if kind == digests {
		_, err = osapi.ReadTokens(bytes.NewReader(own.Data), f.Path)
		return err
	}
	certificate := filepath.Join(filepath.Dir(f.Path), pki.CACertificateFile)
	if kind != authority {
		key := strings.TrimSuffix(f.Key, "key_file") + "cert_file"
		i := slices.IndexFunc(c.all, func(other config.NamedFile) bool { return other.Key == key })
		if i < 0 {
			return nil
		}
		certificate = c.all[i].Path
	}
	shown, err := files.Read(c.env.path(certificate))
	if errors.Is(err, files.ErrUnreadable) && kind != authority { // a result of its own
		return nil
	}
	if err == nil {
		_, err = tls.X509KeyPair(shown.Data, own.Data)
	}
	if err != nil {
		return fmt.Errorf("the certificate %s with the key %s: %w", certificate, f.Path, err)
	}
	return nil
}

// checkDenyLists looks at whether services can use their deny lists: without one they refuse all
// hosts, and say so in their logs alone.
func checkDenyLists(_ context.Context, e *Env) (out []Result) {
	lists := 0
	for _, s := range e.servers() {
		if s.Config == nil || s.service() == "" || s.Config.DenyList.File == "" {
			continue
		}
		lists++
		if r := e.denyList(s); r != nil {
			r.Name, r.Title, r.Found = "deny-list."+
				s.unit(), "Deny list", s.Name+": "+strings.ReplaceAll(r.Found, e.Root, "")
			out = append(out, *r)
		}
	}
	if len(out) == 0 && lists > 0 {
		return pass("%s, all usable", textutil.Count(lists, "list"))
	}
	return out
}

// denyList is the result for the list of a service; nil if all is well.
func (e *Env) denyList(s Service) *Result {
	c := s.Config.DenyList
	as, err := e.forUser(s)
	if err != nil {
		return &Result{Severity: Skipped, Found: err.Error()}
	}
	if r := as.unread(c.File); r != nil {
		return r
	}
	look := e.command("journalctl --unit %s --lines 20 --output cat", s.Name)
	file, err := e.stat(c.File)
	switch {
	case os.IsNotExist(err) && c.URL == "":
		return &Result{
			Severity: Error, Found: c.File + " does not exist", Why: noStart,
			Fix: e.command("compute-agent ca deny-list --create --file %s", c.File),
		}
	case os.IsNotExist(err) && s.Active != "active":
		return nil // fetched when it starts
	case os.IsNotExist(err):
		return &Result{Severity: Error, Found: "the list was not fetched from " + c.URL + " yet",
			Why: "It refuses all hosts until then.", Fix: look}
	case os.IsPermission(err):
		return &Result{Severity: Skipped, Found: c.File + " cannot be looked at; run this command as root"}
	case err != nil:
		return &Result{Severity: Error, Found: reason(err, c.File), Why: noStart, Fix: "ls -l " + c.File}
	}
	groups := s.Groups
	if c.URL == "" { // several services read it
		groups = []string{pki.DenyGroup}
	}
	r := as.readable(c.File, file, groups)
	switch {
	case r != nil && r.Severity == Error:
		r.Why = noStart
		return r
	case r != nil:
		return r
	}
	if err := as.reading(func() { r = e.denyListText(s, look) }); err != nil {
		return &Result{Severity: Skipped, Found: c.File + " cannot be read: " + err.Error()}
	}
	return r
}

// denyListText is the result for a list that the service can read.
func (e *Env) denyListText(s Service, look string) *Result {
	c, path := s.Config.DenyList, e.path(s.Config.DenyList.File)
	content, err := files.Read(path)
	if errors.Is(err, os.ErrPermission) {
		return &Result{Severity: Skipped, Found: c.File + " cannot be read; run this command as root"}
	}
	var denied *pki.DenyFile
	if err == nil && c.URL == "" {
		denied, err = pki.OpenDenyFile(path, zerolog.Nop())
	} else if err == nil {
		denied, err = pki.FollowDenyFile(path, pki.Source{URL: c.URL}, zerolog.Nop())
	}
	if err != nil {
		return &Result{Severity: Error, Found: err.Error(), Why: noStart, Fix: "ls -l " + c.File}
	}
	list, damaged := pki.ParseDenyList(content.Data, c.File)
	_, copied := pki.FollowedFrom(content.Data)
	unusable := denied.RefuseAfter(c.AgeLimit()).Get().Err() != nil
	renew := e.command("compute-agent ca deny-list --renew --file %s", c.File)
	switch serial, date := list.Header(); {
	case damaged != nil && c.URL == "":
		return &Result{
			Severity: Error, Found: damaged.Error(),
			Why: "A service that starts with it refuses all hosts until it is repaired; one that runs keeps " +
				"the last list.",
			Fix: e.command("compute-agent ca deny-list --file %s", c.File) + "   # says what to do",
		}
	case c.URL != "" && !copied: // it has no hosts: one that has is an error above
		return &Result{
			Severity: Error, Found: fmt.Sprintf("%s is not a copy of the list of %s", c.File, c.URL),
			Why: "A service that starts with it refuses all hosts until the list is fetched.", Fix: look,
		}
	case damaged != nil:
		return &Result{Severity: Error, Found: damaged.Error(),
			Why: "A service that starts with it refuses all hosts until the list is fetched.", Fix: look}
	case unusable && date.IsZero():
		return &Result{
			Severity: Error, Why: "It refuses all hosts.", Fix: renew,
			Found: fmt.Sprintf("%s has no header, so that its age is not known, and deny_list.max_age is %s",
				c.File, c.AgeLimit()),
		}
	case unusable:
		r := &Result{
			Severity: Error,
			Why:      "It refuses all hosts.",
			Fix:      renew,
			Found: fmt.Sprintf("%s is of %s, which is longer ago than deny_list.max_age (%s), or ahead of the clock",
				c.File, date.Format("2006-01-02T15:04:05Z07:00"), c.AgeLimit()),
		}
		if c.URL != "" {
			r.Fix = look
		}
		return r
	case serial == 0 && c.URL == "":
		return &Result{Severity: Warning, Found: c.File + " has no header",
			Why: "It is not noticed if a part of it is lost.", Fix: renew}
	}
	return nil
}
