// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/plugins"
)

// Bounds of the abilities of a node.
const (
	// MaxAbilities is how many a node has at most.
	MaxAbilities = 32
	// MaxAbility bounds the name of one, in bytes: lower-case letters, digits and hyphens.
	MaxAbility = 64
)

// abilityTexts complete "cannot".
var abilityTexts = map[string]string{
	plugins.AbilityConsoleLog: "show its console log",
	plugins.AbilityConsole:    "give access to its console",
	plugins.AbilityRebuild:    "rebuild it",
	plugins.AbilityMigrate:    "move it to another host",
}

// Unable is the refusal of what the host of a server cannot do ([CodeUnable]).
func Unable(uuid, ability string) *Error {
	text := abilityTexts[ability]
	if text == "" {
		text = "do that with it"
	}
	return &Error{
		Status: http.StatusConflict, Code: CodeUnable,
		Message: fmt.Sprintf("The host of instance %s cannot %s: its virt driver, or the agent, lacks the ability %q.",
			uuid, text, ability),
	}
}

// IsAbility reports whether a name can be that of an ability.
func IsAbility(name string) bool {
	if name == "" || len(name) > MaxAbility {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
