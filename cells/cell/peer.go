// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"errors"
	"fmt"
	"net/http"
	"os/user"
	"slices"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
)

const peerName = "peer"

// Peer asks the kernel which user opened the connection, which must be one of a unix socket. The
// users apiUsers are the compute API, the users agentUsers the agent of this machine, whose name is
// host. All others are refused. Users are names, or uids in decimal; a name that the machine does
// not know is an error.
func Peer(apiUsers, agentUsers []string, host string) (Auth, error) {
	api, err := uidsOf(apiUsers)
	if err != nil {
		return Auth{}, fmt.Errorf("api_users: %w", err)
	}
	agents, err := uidsOf(agentUsers)
	if err != nil {
		return Auth{}, fmt.Errorf("agent_users: %w", err)
	}
	return Auth{peerName, cellwire.HostAuthNone, func(r *http.Request, _ time.Time, _ *pki.DenyList) (caller, error) {
		uid, err := osapi.PeerUID(r)
		if errors.Is(err, osapi.ErrNoPeer) {
			return caller{},
				&osapi.Unauthenticated{Reason: "Only users of this machine are served, over the cell's unix socket."}
		}
		if err != nil {
			return caller{}, err
		}
		who := caller{user: "uid " + strconv.FormatUint(uint64(uid), 10), api: slices.Contains(api, uid)}
		agent := slices.Contains(agents, uid)
		if !agent && !who.api {
			return who, forbidden(
				"The user of this process is neither the compute API's ([cell] api_users) nor the agent's ([cell] " +
					"agent_users).")
		}
		who.host = func(name string) bool { return agent && name == host }
		return who, nil
	}}, nil
}

// uidsOf looks users up.
func uidsOf(names []string) ([]uint32, error) {
	uids := make([]uint32, 0, len(names))
	for _, name := range names {
		text := name
		if _, err := strconv.ParseUint(name, 10, 32); err != nil {
			known, err := user.Lookup(name)
			if err != nil {
				return nil,
					fmt.Errorf(
						"%w; run `systemd-sysusers` if it is one of compute-agent's, or name a user of this machine",
						err)
			}
			text = known.Uid
		}
		uid, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("the uid of user %q: %w", name, err)
		}
		uids = append(uids, uint32(uid))
	}
	return uids, nil
}
