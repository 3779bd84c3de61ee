// SPDX-License-Identifier: Apache-2.0

package consoles

import (
	"context"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// Deps are all that the calls of this package may touch.
type Deps struct {
	Store Store
	// Gatherer asks the cells.
	Gatherer *gather.Gatherer
	// Servers finds servers.
	Servers serverview.Servers
	// Sessions are the consoles that are open.
	Sessions *Sessions
	// URL is what the URLs of serial consoles begin with; "" is [Path] of this API.
	URL string
	// TokenTTL is how long such a URL can be used.
	TokenTTL time.Duration
}

// Store is what the calls need of the API database.
type Store interface {
	Mapping(ctx context.Context, uuid string) (apidb.Mapping, error)
	AddConsoleToken(ctx context.Context, token, instance string, expires time.Time) error
	ConsoleToken(ctx context.Context, token string) (instance string, err error)
}

// Routes are the calls of this package that are no actions.
func (d *Deps) Routes() []api.Route {
	return []api.Route{{Method: "POST", Path: "/v2.1/servers/{id}/remote-consoles", Body: remoteConsoleSchemas,
		Handle: d.createRemoteConsole, Since: vRemoteConsoles, About: &aboutCreateRemoteConsole}}
}

// Actions are those of this package on one server, by their names in bodies.
func (d *Deps) Actions() map[string]api.Action {
	return map[string]api.Action{
		"os-getConsoleOutput": {Schemas: api.Once(consoleOutputSchema),
			Do: d.Servers.Action(d.consoleOutput), About: &aboutConsoleOutput},
		"os-getSerialConsole": d.consoleAction(&aboutSerialConsole, consoleSerial),
		"os-getVNCConsole":    d.consoleAction(&aboutVNCConsole, "novnc", "xvpvnc"),
		"os-getSPICEConsole":  d.consoleAction(&aboutSPICEConsole, "spice-html5"),
	}
}
