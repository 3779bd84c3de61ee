// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
)

// keyPairRoutes are the calls about key pairs. They belong to users, in whatever project these are.
func (d *Deps) keyPairRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/os-keypairs",
			Query: &keyPairQuery, Handle: d.listKeyPairs, Rules: []api.Rule{ruleKeyPairsIndex}},
		{Method: "POST", Path: "/v2.1/os-keypairs",
			Body: keyPairSchemas, Handle: d.createKeyPair, Rules: []api.Rule{ruleKeyPairsCreate}},
		{Method: "GET", Path: "/v2.1/os-keypairs/{id}",
			Query: &oneKeyPairQuery, Handle: d.showKeyPair, Rules: []api.Rule{ruleKeyPairsShow}},
		{Method: "DELETE", Path: "/v2.1/os-keypairs/{id}",
			Query: &oneKeyPairQuery, Handle: d.deleteKeyPair, Rules: []api.Rule{ruleKeyPairsDelete}},
	}
}

// The policies of key pairs.
var (
	ruleKeyPairsIndex  = api.Rule{Name: "os_compute_api:os-keypairs:index", Default: api.SameUser}
	ruleKeyPairsShow   = api.Rule{Name: "os_compute_api:os-keypairs:show", Default: api.SameUser}
	ruleKeyPairsCreate = api.Rule{Name: "os_compute_api:os-keypairs:create", Default: api.SameUser}
	ruleKeyPairsDelete = api.Rule{Name: "os_compute_api:os-keypairs:delete", Default: api.SameUser}
)

// The microversions of key pairs.
const (
	vKeyTypes api.Version = 2  // they have a type; 201 and 204
	vKeyUsers api.Version = 10 // those of other users, for administrators
	vKeyPages api.Version = 35 // lists have pages
)

// keyPairSchemas are the bodies of POST /os-keypairs.
var keyPairSchemas = api.Fields{
	{Name: "name", Schema: append(api.SchemaName[:len(api.SchemaName):len(api.SchemaName)],
		js.Pattern(`^[_\- a-zA-Z0-9]+$`))},
	{Name: "public_key", Schema: api.SchemaText},
	{Name: "type", Since: vKeyTypes, Schema: js.Schema{js.Type("string"), js.Enum(apidb.KeySSH, apidb.KeyX509)}},
	{Name: "user_id", Since: vKeyUsers, Schema: api.SchemaText},
}.Steps(func(_ api.Version, members js.Properties) js.Schema {
	return js.ClosedObject(js.Properties{{Name: "keypair", Schema: js.ClosedObject(members, "name")}}, "keypair")
})

// keyPairQuery are the parameters of GET /os-keypairs, and oneKeyPairQuery those of calls about
// one.
var (
	keyPairQuery = api.Parameters{All: append(oneKeyPairQuery.All,
		api.Parameter{Name: "limit", Since: vKeyPages, Schema: api.SchemaAnyNumber, Text: api.TextLimit},
		api.Parameter{Name: "marker", Since: vKeyPages,
			Schema: api.SchemaText, Text: "The name of a key pair: the page begins after it."})}
	oneKeyPairQuery = api.Parameters{
		All: []api.Parameter{{Name: "user_id", Since: vKeyUsers, Schema: api.SchemaText,
			Text: "The user whose key pairs are meant; others than the own for administrators."}},
	}
)

// keyPairUser is the user whose key pairs a request is about, if the caller passes a rule for them:
// the caller, or from 2.10 on the one that is named.
func keyPairUser(x *api.Exchange, rule api.Rule) (string, error) {
	user := x.Caller.User
	if named := x.Params.All("user_id"); len(named) > 0 && named[0] != "" {
		user = named[0]
	}
	return user, x.AllowUser(rule, user)
}

// keyPairView is a key pair with what all calls show of it.
func keyPairView(x *api.Exchange, k *apidb.KeyPair) *api.Object {
	o := new(api.Object).Add("name", k.Name).Add("public_key", k.PublicKey).Add("fingerprint", k.Fingerprint)
	if x.AtLeast(vKeyTypes) {
		o.Add("type", k.Type)
	}
	return o
}

func noKeyPair(user, name string) error {
	return osapi.NotFound("Keypair %s not found for user %s", osapi.Shortened(name), osapi.Shortened(user))
}

// listKeyPairs answers GET /os-keypairs, by name.
func (d *Deps) listKeyPairs(x *api.Exchange) error {
	user, err := keyPairUser(x, ruleKeyPairsIndex)
	if err != nil {
		return err
	}
	limit, marker := 0, ""
	if x.AtLeast(vKeyPages) {
		limit, marker = api.ReadLimit(x.Params, d.MaxLimit), x.Params.Last("marker")
		if x.Params.Has("marker") {
			_, err := d.Store.KeyPair(x.Context(), user, marker)
			if err != nil {
				return api.RefuseIf(err, apidb.ErrNotFound,
					osapi.BadRequest("Marker %s could not be found.", osapi.Shortened(marker)))
			}
		}
	}
	var pairs []apidb.KeyPair
	if limit > 0 || !x.AtLeast(vKeyPages) {
		if pairs, err = d.Store.KeyPairs(x.Context(), user, marker, limit); err != nil {
			return err
		}
	}
	shown := make(api.List, len(pairs))
	for i := range pairs {
		shown[i] = new(api.Object).Add("keypair", keyPairView(x, &pairs[i]))
	}
	answer := new(api.Object).Add("keypairs", shown)
	if limit > 0 && len(pairs) == limit {
		answer.Add("keypairs_links", x.NextLink("os-keypairs", x.Params, pairs[len(pairs)-1].Name))
	}
	return x.JSON(http.StatusOK, answer)
}

// showKeyPair answers GET /os-keypairs/{id}.
func (d *Deps) showKeyPair(x *api.Exchange) error {
	user, err := keyPairUser(x, ruleKeyPairsShow)
	if err != nil {
		return err
	}
	k, err := d.Store.KeyPair(x.Context(), user, x.Param("id"))
	if err != nil {
		return api.RefuseIf(err, apidb.ErrNotFound, noKeyPair(user, x.Param("id")))
	}
	return x.JSON(http.StatusOK, new(api.Object).
		Add("keypair", keyPairView(x, &k).Add("user_id", k.UserID).Add("id", k.ID).
			Add("created_at", api.Time(&k.CreatedAt)).
			Add("deleted", false).Add("deleted_at", nil).Add("updated_at", nil)))
}

// createKeyPair answers POST /os-keypairs, within the quota of the user: it keeps a public key, or
// makes a pair. The private key is in the answer and kept nowhere.
func (d *Deps) createKeyPair(x *api.Exchange) error {
	asked := api.MemberObject(x.Asked, "keypair")
	k := apidb.KeyPair{
		UserID: x.Caller.User, Name: strings.TrimSpace(api.MemberString(asked, "name")), Type: apidb.KeySSH,
		PublicKey: api.MemberString(asked, "public_key")}
	if named := api.MemberString(asked, "user_id"); named != "" {
		k.UserID = named
	}
	if err := x.AllowUser(ruleKeyPairsCreate, k.UserID); err != nil {
		return err
	}
	if len(k.UserID) > maxUserID {
		return osapi.BadRequest("user_id has more than %d bytes.", maxUserID)
	}
	if kind := api.MemberString(asked, "type"); kind != "" {
		k.Type = kind
	}
	limits, err := d.Quota.Limits(x.Context(), x.Caller.Project)
	if err != nil {
		return err
	}
	private := ""
	if _, imported := asked.Get("public_key"); !imported {
		// Above all not before the quota is checked, though it is checked once more: it costs CPU.
		if err := d.keyPairQuota(x, k.UserID, limits); err != nil {
			return err
		}
		if k.PublicKey, private, err = generateKey(k.Type); err != nil {
			return err
		}
	}
	if k.Fingerprint, err = keyFingerprint(k.Type, k.PublicKey); err != nil {
		return osapi.BadRequest("Keypair data is invalid: %s", err)
	}
	made, err := d.Store.CreateKeyPair(x.Context(), k, func(has int64) error { return tooManyKeyPairs(has, limits) })
	if err != nil {
		return api.RefuseIf(err, apidb.ErrExists, api.Conflict("Key pair '%s' already exists.", k.Name))
	}
	shown, status := keyPairView(x, &made).Add("user_id", made.UserID), http.StatusCreated
	if private != "" {
		shown.Add("private_key", private)
	}
	if !x.AtLeast(vKeyTypes) {
		status = http.StatusOK
	}
	return x.JSON(status, new(api.Object).Add("keypair", shown))
}

// maxUserID bounds the identifiers of users, as columns do.
const maxUserID = 255

// keyPairQuota refuses one more key pair for a user whose quota is used up.
func (d *Deps) keyPairQuota(x *api.Exchange, user string, limits apidb.QuotaSet) error {
	pairs, err := d.Store.KeyPairs(x.Context(), user, "", 0)
	if err != nil {
		return err
	}
	return tooManyKeyPairs(int64(len(pairs)), limits)
}

func tooManyKeyPairs(has int64, limits apidb.QuotaSet) error {
	if most := keyPairs.limit(limits); most >= 0 && has >= most {
		return api.Forbidden("Quota exceeded, too many key pairs.")
	}
	return nil
}

// deleteKeyPair answers DELETE /os-keypairs/{id}. Servers that were made with it keep it.
func (d *Deps) deleteKeyPair(x *api.Exchange) error {
	user, err := keyPairUser(x, ruleKeyPairsDelete)
	if err != nil {
		return err
	}
	err = d.Store.DeleteKeyPair(x.Context(), user, x.Param("id"))
	if err != nil {
		return api.RefuseIf(err, apidb.ErrNotFound, noKeyPair(user, x.Param("id")))
	}
	if !x.AtLeast(vKeyTypes) {
		return x.Empty(http.StatusAccepted)
	}
	return x.Empty(http.StatusNoContent)
}

// checkPublicKey refuses what cannot be kept.
func checkPublicKey(key string) error {
	if len(key) > plugins.MaxPublicKey || strings.ContainsRune(key, 0) {
		return fmt.Errorf("a public key has at most %d bytes, and none of them is 0", plugins.MaxPublicKey)
	}
	return nil
}
