// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// unixURL begins the address of a unix socket.
const unixURL = "unix://"

// cellURLs accepts the addresses of the processes of a cell.
func cellURLs(s string) *fault {
	for one := range strings.SplitSeq(s, ",") {
		if one == "" {
			return faultf("remove the comma too many", "it has an empty address")
		}
		if bad := cellURL(strings.TrimSpace(one)); bad != nil {
			return bad
		}
	}
	return nil
}

// cellURL accepts the address of a cell, and nothing.
func cellURL(s string) *fault {
	if s == "" {
		return nil
	}
	if path, unix := strings.CutPrefix(s, unixURL); unix {
		return socketPath(path)
	}
	bad := serviceURL(s)
	if bad != nil && !bad.secret {
		bad.hint = `write a URL such as "https://cell1.example:8780", or unix:///PATH for a cell on this machine`
	}
	return bad
}

// cellListen accepts where a cell may listen.
func cellListen(s string) *fault {
	path, unix := strings.CutPrefix(s, unixURL)
	switch {
	case unix:
		return socketPath(path)
	case s == "":
		return faultf("write an address such as \"192.0.2.1:8780\" or \"unix:///run/compute-agent/cell1.sock\"",
			"it is empty")
	}
	return listenAddress(s)
}

func socketPath(path string) *fault {
	switch {
	case !filepath.IsAbs(path):
		return faultf("write the whole path, as in unix:///run/compute-agent/cell1.sock",
			"%s is not an absolute path", shown(path))
	case len(path) > maxSocketPath:
		return faultf("use a shorter path", "the path is %d bytes long, and Linux allows %d for the path of a socket",
			len(path), maxSocketPath)
	}
	return nil
}

// databaseDSN accepts the DSN of a database without a password.
func databaseDSN(s string) *fault {
	const like = "write sqlite:///PATH, with the whole path, or mysql://USER@HOST/DATABASE?password_file=PATH, or " +
		"postgres://… of that form"
	path, file := strings.CutPrefix(s, "sqlite://")
	if file {
		if bad := absolutePath(path); bad != nil {
			bad.hint = like
			return bad
		}
		if _, err := engine.PathOf(s); err != nil {
			return faultf(like, "%s", err.Error())
		}
		return nil
	}
	a, err := engine.ParseAddressOf(s, anyCredentials) // resolveDatabase looks whether there is one
	if err == nil && a.Shared() && !a.HasPassword {
		return nil
	}
	bad := faultf(like, "it is not the address of a database that is supported")
	switch {
	case err == nil && a.HasPassword:
		bad = faultf("write the password into a file (chmod g-w,o= FILE), and ?password_file=FILE at the end of "+
			"the address", "the address of a database may not hold a password")
	case Unreadable(err): // one of its files, which the error says what to do about
		bad.what, bad.hint, bad.cause = err.Error(), "", err
	case err != nil && strings.Contains(s, "://"):
		bad.what = err.Error()
	}
	bad.secret = true
	return bad
}

// memberPrefixes have the form of extra specs and of metadata of aggregates.
var memberPrefixes = regexp.MustCompile(`^[a-zA-Z0-9_. -]+:[a-zA-Z0-9_:. -]*$`)

// memberPrefix accepts what extra specs begin with that name aggregates: no others have it, so that
// what Nova means by an extra spec stays.
func memberPrefix(s string) *fault {
	const hint = "write a namespace of your own with its colon, such as \"reservation:\""
	switch {
	case len(s) > 200 || !memberPrefixes.MatchString(s):
		return faultf(hint,
			"%s is no prefix of extra specs and metadata: letters, digits, spaces, hyphens, underscores and "+
				"periods, then a colon", shown(s))
	case !extraspecs.Other(s + "x"):
		return faultf(hint, "extra specs that begin with %s have a meaning of their own (docs/extra-specs.md)",
			shown(s))
	}
	return nil
}

// pciAlias checks one alias; that no two have one name is checked with all of them.
func pciAlias(s string) *fault {
	if _, err := extraspecs.ParseAliases([]string{s}); err != nil {
		return faultf("write {\"name\": \"gpu\", \"resource_class\": \"CUSTOM_GPU\"}", "%s", err)
	}
	return nil
}

// zoneName accepts the name of an availability zone.
func zoneName(s string) *fault {
	if s == "" || len(s) > 255 || strings.ContainsAny(s, ": ") {
		return faultf("write a name without colons and spaces", "%s cannot name an availability zone", shown(s))
	}
	return nil
}

// cells reports what cannot work about cells and the compute API.
func (v *validator) cells() {
	cell, api, client := v.cfg.Cell, v.cfg.ComputeAPI, v.cfg.CellClient
	v.keyPair("cell.", cell.CertFile, cell.KeyFile)
	v.keyPair("cell_client.", client.CertFile, client.KeyFile)
	v.keyPair("compute_api.", api.CertFile, api.KeyFile)
	v.keyPair("compute_api.cell_", api.CellCertFile, api.CellKeyFile)
	v.clientCA("cell", "peer_ca_file", cell.CertFile, cell.PeerCAFile)
	v.clientCA("compute_api", "client_ca_file", api.CertFile, api.ClientCAFile)
	v.tokenAuth("cell", cell.Auth, cell.TokenFile)
	v.tokenAuth("compute_api", api.Auth, api.TokenFile)
	if cell.Auth == AuthMTLS && cell.PeerCAFile == "" {
		v.addProblem("cell.auth", "is \"mtls\", but cell.peer_ca_file is empty: no certificate could be checked",
			"set cert_file, key_file and peer_ca_file")
	}
	if cell.Auth == AuthPeer && !strings.HasPrefix(cell.Listen, unixURL) {
		v.addProblem("cell.auth",
			"is \"peer\", but cell.listen is not a unix socket: only there does the kernel know the user of a client",
			"set listen = \"unix:///PATH\"")
	}
	v.openNoauth("cell", cell.Auth, cell.Listen,
		"set auth to \"token\" or \"mtls\", or listen on 127.0.0.1 or unix:///PATH")
	v.openNoauth("compute_api", api.Auth, api.Listen, "set auth to \"token\" or \"keystone\", or listen on 127.0.0.1")
	v.twice("cell.report_interval", cell.ReportInterval, "cell.service_down_time", cell.ServiceDownTime,
		"one report that is late would make a host look down")
	v.twice("compute_api.cell_ping_interval", api.CellPingInterval, "compute_api.cell_down_time", api.CellDownTime,
		"a ping would have too little time for its answer")
}

// twice reports a time after which something counts as down that is less than twice the interval at
// which it shows life.
func (v *validator) twice(
	intervalKey string, interval time.Duration, downKey string, down time.Duration, effect string,
) {
	if 2*interval <= down {
		return
	}
	v.addProblem(v.firstSet(intervalKey, downKey), fmt.Sprintf("%s (%s) is more than half of %s (%s): %s", intervalKey,
		formatDuration(interval), downKey, formatDuration(down), effect),
		"make "+downKey+" at least twice as long")
}

// openNoauth reports a server that would believe everybody on the network: it does not start. Names
// are looked up when it does.
func (v *validator) openNoauth(section, auth, listen, hint string) {
	if auth != AuthNoauth {
		return
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && osapi.IsExposed(host) {
		v.addProblem(section+".listen",
			"is not a loopback address, and "+section+".auth = \"noauth\" trusts all clients",
			hint)
	}
}

func (v *validator) clientCA(section, key, cert, ca string) {
	if ca != "" && cert == "" {
		v.noEffect(section+"."+key,
			"while "+section+".cert_file is empty: clients cannot show certificates without TLS",
			"set cert_file and key_file")
	}
}

func (v *validator) tokenAuth(section, auth, file string) {
	switch {
	case auth == AuthToken && file == "":
		v.addProblem(section+".auth", "is \"token\", but "+section+".token_file is empty",
			"set token_file to the file of the tokens' digests")
	case auth != AuthToken && file != "":
		v.noEffect(section+".token_file", "with auth = \""+auth+"\"", "set auth = \"token\"")
	}
}

// hostPattern checks a shell pattern of the names of hosts.
func hostPattern(s string) *fault {
	if _, err := path.Match(s, ""); err != nil || s == "" {
		return faultf("write a pattern such as \"cn-*\"", "%s is not a shell pattern", shown(s))
	}
	return nil
}
