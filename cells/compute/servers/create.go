// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"crypto/rand"
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// createServers answers POST /servers: 202 as soon as the API database has what was asked for; the
// scheduler does the rest. The order of the checks is Nova's. Cost: the flavor, what [Scheduler]
// Create costs, and one question to all cells if a zone other than the default one is asked for.
func (d *Deps) createServers(x *api.Exchange) error {
	asked := api.MemberObject(x.Asked, "server")
	least := api.MemberInt(asked, "min_count", 1)
	most := api.MemberInt(asked, "max_count", least)
	if least > most {
		return osapi.BadRequest("min_count must be <= max_count")
	}
	if most > scheduler.MaxServers {
		return osapi.BadRequest("max_count must be at most %d", scheduler.MaxServers)
	}
	if err := x.AllowOwn(ruleServersCreate); err != nil {
		return err
	}
	if err := rejectUnsupported(x, x.Asked, asked); err != nil {
		return err
	}
	request := scheduler.CreateRequest{Min: least, Max: most}
	request.RequestID, request.Traceparent = x.ID, tracing.Traceparent(x.Context())
	if err := d.requestedZone(x, api.MemberString(asked, "availability_zone"), &request.RequestSpec); err != nil {
		return err
	}
	// An empty one that is given stands for an empty disk: for a server booted from a volume it is
	// given empty, too. There are no volumes here.
	if _, given := asked.Get("imageRef"); !given {
		return osapi.BadRequest("Missing imageRef attribute")
	}
	image := api.MemberString(asked, "imageRef")
	if err := checkNetworks(x, asked); err != nil {
		return err
	}
	if err := d.requestedHints(x, x.Asked, &request.RequestSpec); err != nil {
		return err
	}
	flavor, err := d.requestedFlavor(x, asked)
	if err != nil {
		return err
	}
	metadata, err := d.requestedMetadata(x, asked)
	if err != nil {
		return err
	}
	key, err := d.requestedKey(x, asked)
	if err != nil {
		return err
	}
	request.Server = cellwire.Server{
		ProjectID: x.Who.Project, UserID: x.Who.User,
		Name: api.MemberString(asked, "name"), ImageRef: image, Flavor: flavor, Zone: request.Zone, Metadata: metadata,
		Tags: requestedTags(asked), UserData: api.MemberString(asked, "user_data"),
		KeyName: key.Name, KeyData: key.PublicKey,
		ConfigDrive: api.MemberBool(asked, "config_drive", false),
		DiskConfig:  "MANUAL",
		AccessIPv4:  requestedAddress(asked, "accessIPv4"), AccessIPv6: requestedAddress(asked, "accessIPv6"),
		Reservation: "r-" + randomLetters(8),
	}
	request.Hostname = hostName(request.Name)
	request.Description = new(request.Name)
	if x.Since(api.VDescription) {
		request.Description = api.MemberText(asked, "description")
	}
	if choice := api.MemberString(asked, "OS-DCF:diskConfig"); choice != "" {
		request.DiskConfig = choice
	}
	request.AllowCellDown = x.May(ruleCreateCellDown, x.Who.Project)
	made, err := d.Scheduler.Create(x.Context(), request)
	if err != nil {
		return createFault(err)
	}
	d.Tenant.LogUnread(x, &flavor)
	return accepted(x, asked, &made[0].Server)
}

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
func accepted(x *api.Exchange, asked *jsonkit.Object, made *cellwire.Server) error {
	if api.MemberBool(asked, "return_reservation_id", false) {
		return x.JSON(http.StatusAccepted, new(api.Object).Add("reservation_id", made.Reservation))
	}
	password := api.MemberString(asked, "adminPass")
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

// passwordLetters are those that Nova makes passwords of: none is easily taken for another.
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
