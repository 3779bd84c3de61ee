// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"crypto/rand"
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// createFault maps the error of a boot to an API error.
func createFault(err error) error {
	var exceeded *quota.ExceededError
	var invalid *resourcerequest.InvalidError
	switch {
	case errors.Is(err, quota.ErrGroupFull):
		return api.Forbidden("Quota exceeded, too many servers in group").Because(err)
	case errors.Is(err, apidb.ErrGroup): // deleted meanwhile
		return osapi.BadRequest("The server group could not be found.").Because(err)
	case errors.As(err, &exceeded):
		return api.Forbidden("%s", exceeded).Because(err)
	case errors.Is(err, quota.ErrCellDown):
		// Nova's sentence, and the reason. No names of cells: members need not know of them. The
		// log has them.
		return api.Forbidden(
			"Policy doesn't allow %s to be performed. Servers of the project are in a cell that does not answer, "+
				"and new ones are refused until it does. Try again later.", ruleCreateCellDown).Because(err)
	case errors.As(err, &invalid):
		return osapi.BadRequest("%s", invalid.Message).Because(err)
	}
	return err
}

// accepted is the answer to a boot, by the first of the servers. As in Nova there is a password in
// it, the one that was sent or a new one; it is not set in the guest, as with Nova's drivers
// without password injection.
func accepted(x *api.Exchange, body *createBody, made *cellwire.Server) error {
	if body.Reservation {
		return x.JSON(http.StatusAccepted, new(api.Object).Add("reservation_id", made.Reservation))
	}
	password := body.Password
	if password == "" {
		password = newPassword()
	}
	x.Header().Set("Location", x.SelfLink("servers", made.UUID))
	return x.JSON(http.StatusAccepted, new(api.Object).Add("server", new(api.Object).
		Add("id", made.UUID).
		Add("links", x.Links("servers", made.UUID)).
		Add("OS-DCF:diskConfig", made.DiskConfig).
		Add("security_groups", api.List{new(api.Object).Add("name", defaultSecurityGroup)}).
		Add("adminPass", password)))
}

// passwordLetters are the characters of Nova's passwords: no two of them look alike.
const passwordLetters = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

func newPassword() string { return randomOf(passwordLetters, 12) }

// randomLetters is an identifier as Nova's of reservations.
func randomLetters(n int) string { return randomOf("0123456789abcdefghijklmnopqrstuvwxyz", n) }

// randomOf draws letters, each as likely as any other.
func randomOf(letters string, n int) string {
	made := make([]byte, 0, n)
	drawn := make([]byte, 4*n)
	fair := 256 - 256%len(letters)
	for len(made) < n {
		_, _ = rand.Read(drawn) // It never fails.
		for _, b := range drawn {
			if int(b) < fair && len(made) < n {
				made = append(made, letters[int(b)%len(letters)])
			}
		}
	}
	return string(made)
}
