// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Action is one of those that a POST to …/action asks for.
type Action struct {
	// Schemas are those of its argument; without one it is not looked at.
	Schemas SchemaSteps
	// Do does it and answers. The argument is that of the body, nil if it is no object.
	Do func(x *Exchange, argument *jsonkit.Object) error
	// Until is the last microversion that has the action, and instead what replaces it then; 0 is
	// no bound.
	Until   Version
	Instead string
	// About is what the reference says of it.
	About *About
}

// argument is the schema of its argument at a microversion.
func (a *Action) argument(v Version) jsonkit.Schema {
	if a.Schemas == nil {
		return nil
	}
	return a.Schemas.At(v)
}

// act does what the body asks for: it is an object whose only member names one of the actions, and
// is the argument.
func (x *Exchange) act() error {
	value, err := x.Decoded()
	if err != nil {
		return err
	}
	body, is := value.(*jsonkit.Object)
	if !is || len(body.Names()) != 1 {
		return osapi.BadRequest("Malformed request body")
	}
	name := body.Names()[0]
	action, known := x.route.Actions[name]
	switch {
	case !known && slices.Contains(novaActions, name):
		return osapi.BadRequest("This service does not support the action %s; docs/cells.md lists the calls that it has", name)
	case !known:
		return osapi.BadRequest("There is no such action: %s", osapi.Shortened(name))
	}
	if err := jsonkit.Validate(jsonkit.ClosedObject(jsonkit.Properties{{Name: name, Schema: action.argument(x.Version)}}, name), value); err != nil {
		return osapi.BadRequest("%s", err)
	}
	x.Action = name
	if action.Until > 0 && x.Version > action.Until {
		return osapi.BadRequest("There is no such action in microversion %s; %s replaces it", x.Version, action.Instead)
	}
	return action.Do(x, MemberObject(body, name))
}

// novaActions are the actions on servers that Nova has, and this service has not.
var novaActions = []string{
	"addFixedIp", "addFloatingIp", "addSecurityGroup", "changePassword", "createBackup", "createImage", "injectNetworkInfo", "lock",
	"os-getRDPConsole", "os-getSPICEConsole", "os-getVNCConsole", "os-migrateLive", "pause", "removeFixedIp",
	"removeFloatingIp", "removeSecurityGroup", "rescue", "resetNetwork", "resize", "resume", "shelve", "shelveOffload", "suspend",
	"trigger_crash_dump", "unlock", "unpause", "unrescue", "unshelve",
}
