// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// The roles in Nova's policies.
const (
	roleAdmin  = "admin"
	roleMember = "member"
	roleReader = "reader"
)

// identify finds out who sends the request. As in Keystone, the role admin implies member, and
// member implies reader. Who is only believed (osapi.NoAuth) and names no role, in X-Roles or as a
// third part of the token USER:PROJECT:ROLES, is a member of the project, as with Nova's noauth2.
func (x *Exchange) identify() error {
	if err := x.Authenticate(); err != nil {
		return err
	}
	who := &x.Who
	if who.Host != nil {
		return osapi.Errorf(http.StatusForbidden,
			"The compute API has no calls for hosts, and the token is that of host %s.", who.Host.Name)
	}
	roles := slices.Clone(who.Roles)
	if _, believed := x.Service.Authenticator.(osapi.NoAuth); believed && len(x.R.Header[osapi.HeaderRoles]) == 0 {
		project, named, _ := strings.Cut(who.Project, ":")
		who.Project = project
		switch {
		case named != "":
			roles = strings.Split(strings.ToLower(named), ",")
		case len(roles) == 0:
			roles = append(roles, roleMember)
		}
	}
	if slices.Contains(roles, roleAdmin) && !slices.Contains(roles, roleMember) {
		roles = append(roles, roleMember)
	}
	if slices.Contains(roles, roleMember) && !slices.Contains(roles, roleReader) {
		roles = append(roles, roleReader)
	}
	who.Roles = roles
	return nil
}
