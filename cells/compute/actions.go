// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// action is one of those that a POST to …/action asks for.
type action struct {
	// schemas are those of its argument; without one it is not looked at.
	schemas schemaSteps
	// do does it and answers. The argument is that of the body, nil if it is no object.
	do func(x *exchange, argument *jsonkit.Object) error
	// until is the last microversion that has the action, and instead what replaces it then; 0 is
	// no bound.
	until   Version
	instead string
	// about is what the reference says of it.
	about *about
}

// argument is the schema of its argument at a microversion.
func (a *action) argument(v Version) jsonkit.Schema {
	if a.schemas == nil {
		return nil
	}
	return a.schemas.at(v)
}

// act does what the body asks for: it is an object whose only member names one of the actions, and
// is the argument.
func (x *exchange) act() error {
	value, err := x.decoded()
	if err != nil {
		return err
	}
	body, is := value.(*jsonkit.Object)
	if !is || len(body.Names()) != 1 {
		return badRequest("Malformed request body")
	}
	name := body.Names()[0]
	action, known := x.route.actions[name]
	switch {
	case !known && slices.Contains(novaActions, name):
		return badRequest("This service does not support the action %s; docs/cells.md lists the calls that it has", name)
	case !known:
		return badRequest("There is no such action: %s", shortened(name))
	}
	if err := jsonkit.Validate(jsonkit.ClosedObject(jsonkit.Properties{{Name: name, Schema: action.argument(x.version)}}, name), value); err != nil {
		return badRequest("%s", err)
	}
	x.action = name
	if action.until > 0 && x.version > action.until {
		return badRequest("There is no such action in microversion %s; %s replaces it", x.version, action.instead)
	}
	return action.do(x, memberObject(body, name))
}

// novaActions are the actions on servers that Nova has, and this service has not.
var novaActions = []string{
	"addFixedIp", "addFloatingIp", "addSecurityGroup", "changePassword", "createBackup", "createImage", "injectNetworkInfo", "lock",
	"os-getRDPConsole", "os-getSPICEConsole", "os-getVNCConsole", "os-migrateLive", "pause", "removeFixedIp",
	"removeFloatingIp", "removeSecurityGroup", "rescue", "resetNetwork", "resize", "resume", "shelve", "shelveOffload", "suspend",
	"trigger_crash_dump", "unlock", "unpause", "unrescue", "unshelve",
}
