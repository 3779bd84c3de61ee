// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/plugins"
)

// keyPairRoutes are the calls about key pairs. They belong to users, in whatever project these are.
func (a *API) keyPairRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/os-keypairs", query: &keyPairQuery, handle: a.listKeyPairs, about: &aboutListKeyPairs},
		{method: "POST", path: "/v2.1/os-keypairs", body: keyPairSchemas, handle: a.createKeyPair, about: &aboutCreateKeyPair},
		{method: "GET", path: "/v2.1/os-keypairs/{id}", query: &oneKeyPairQuery, handle: a.showKeyPair, about: &aboutShowKeyPair},
		{method: "DELETE", path: "/v2.1/os-keypairs/{id}", query: &oneKeyPairQuery, handle: a.deleteKeyPair, about: &aboutDeleteKeyPair},
	}
}

// The policies of key pairs.
var (
	ruleKeyPairsIndex  = Rule{"os_compute_api:os-keypairs:index", sameUser}
	ruleKeyPairsShow   = Rule{"os_compute_api:os-keypairs:show", sameUser}
	ruleKeyPairsCreate = Rule{"os_compute_api:os-keypairs:create", sameUser}
	ruleKeyPairsDelete = Rule{"os_compute_api:os-keypairs:delete", sameUser}
)

// The microversions of key pairs.
const (
	vKeyTypes Version = 2  // they have a type; 201 and 204
	vKeyUsers Version = 10 // those of other users, for administrators
	vKeyPages Version = 35 // lists have pages
)

// keyPairSchemas are the bodies of POST /os-keypairs.
var keyPairSchemas = func() schemaSteps {
	pair := js.Properties{
		{Name: "name", Schema: append(schemaName[:len(schemaName):len(schemaName)], js.Pattern(`^[_\- a-zA-Z0-9]+$`))},
		{Name: "public_key", Schema: schemaText},
	}
	body := func(p js.Properties) js.Schema {
		return js.ClosedObject(js.Properties{{Name: "keypair", Schema: js.ClosedObject(p, "name")}}, "keypair")
	}
	typed := pair.With("type", js.Schema{js.Type("string"), js.Enum(apidb.KeySSH, apidb.KeyX509)})
	return schemaSteps{{vKeyUsers, body(typed.With("user_id", schemaText))}, {vKeyTypes, body(typed)}, {MinVersion, body(pair)}}
}()

// keyPairQuery are the parameters of GET /os-keypairs, and oneKeyPairQuery those of calls about
// one.
var (
	keyPairQuery = parameters{all: append(oneKeyPairQuery.all,
		parameter{name: "limit", since: vKeyPages, schema: schemaAnyNumber, text: textLimit},
		parameter{name: "marker", since: vKeyPages, schema: schemaText, text: "The name of a key pair: the page begins after it."})}
	oneKeyPairQuery = parameters{
		all: []parameter{{name: "user_id", since: vKeyUsers, schema: schemaText, text: "The user whose key pairs are meant; others than the own for administrators."}},
	}
)

// keyPairUser is the user whose key pairs a request is about, if the caller passes a rule for them:
// the caller, or from 2.10 on the one that is named.
func keyPairUser(x *exchange, rule Rule) (user string, params query, err error) {
	user = x.Who.User
	if params, err = x.checkedQuery(); err != nil {
		return "", params, err
	}
	if named := params.every("user_id"); len(named) > 0 && named[0] != "" {
		user = named[0]
	}
	return user, params, x.allowUser(rule, user)
}

// keyPairView is a key pair with what all calls show of it.
func keyPairView(x *exchange, k *apidb.KeyPair) *object {
	o := new(object).add("name", k.Name).add("public_key", k.PublicKey).add("fingerprint", k.Fingerprint)
	if x.since(vKeyTypes) {
		o.add("type", k.Type)
	}
	return o
}

func noKeyPair(user, name string) error {
	return notFound("Keypair %s not found for user %s", shortened(name), shortened(user))
}

// listKeyPairs answers GET /os-keypairs, by name.
func (a *API) listKeyPairs(x *exchange) error {
	user, params, err := keyPairUser(x, ruleKeyPairsIndex)
	if err != nil {
		return err
	}
	limit, marker := 0, ""
	if x.since(vKeyPages) {
		limit, marker = readLimit(params, a.options.MaxLimit), params.last("marker")
		if params.has("marker") {
			_, err := a.store.KeyPair(x.ctx(), user, marker)
			if errors.Is(err, apidb.ErrNotFound) {
				return badRequest("Marker %s could not be found.", shortened(marker))
			}
			if err != nil {
				return err
			}
		}
	}
	var pairs []apidb.KeyPair
	if limit > 0 || !x.since(vKeyPages) {
		if pairs, err = a.store.KeyPairs(x.ctx(), user, marker, limit); err != nil {
			return err
		}
	}
	shown := make(list, len(pairs))
	for i := range pairs {
		shown[i] = new(object).add("keypair", keyPairView(x, &pairs[i]))
	}
	answer := new(object).add("keypairs", shown)
	if limit > 0 && len(pairs) == limit {
		answer.add("keypairs_links", x.nextLink("os-keypairs", params, pairs[len(pairs)-1].Name))
	}
	return x.json(http.StatusOK, answer)
}

// showKeyPair answers GET /os-keypairs/{id}.
func (a *API) showKeyPair(x *exchange) error {
	user, _, err := keyPairUser(x, ruleKeyPairsShow)
	if err != nil {
		return err
	}
	k, err := a.store.KeyPair(x.ctx(), user, x.param("id"))
	if errors.Is(err, apidb.ErrNotFound) {
		return noKeyPair(user, x.param("id"))
	}
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("keypair", keyPairView(x, &k).add("user_id", k.UserID).add("id", k.ID).
		add("created_at", stamp(&k.CreatedAt)).add("deleted", false).add("deleted_at", nil).add("updated_at", nil)))
}

// createKeyPair answers POST /os-keypairs, within the quota of the user: it keeps a public key, or
// makes a pair. The private key is in the answer and kept nowhere.
func (a *API) createKeyPair(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	asked := memberObject(body, "keypair")
	k := apidb.KeyPair{UserID: x.Who.User, Name: strings.TrimSpace(memberString(asked, "name")), Type: apidb.KeySSH, PublicKey: memberString(asked, "public_key")}
	if named := memberString(asked, "user_id"); named != "" {
		k.UserID = named
	}
	if err := x.allowUser(ruleKeyPairsCreate, k.UserID); err != nil {
		return err
	}
	if len(k.UserID) > maxUserID {
		return badRequest("user_id has more than %d bytes.", maxUserID)
	}
	if kind := memberString(asked, "type"); kind != "" {
		k.Type = kind
	}
	limits, err := a.quota.Limits(x.ctx(), x.Who.Project)
	if err != nil {
		return err
	}
	private := ""
	if _, imported := asked.Get("public_key"); !imported {
		// Above all not before the quota is checked, though it is checked once more: it costs CPU.
		if err := a.keyPairQuota(x, k.UserID, limits); err != nil {
			return err
		}
		if k.PublicKey, private, err = generateKey(k.Type); err != nil {
			return err
		}
	}
	if k.Fingerprint, err = keyFingerprint(k.Type, k.PublicKey); err != nil {
		return badRequest("Keypair data is invalid: %s", err)
	}
	made, err := a.store.CreateKeyPair(x.ctx(), k, func(has int64) error { return tooManyKeyPairs(has, limits) })
	if errors.Is(err, apidb.ErrExists) {
		return conflict("Key pair '%s' already exists.", k.Name)
	}
	if err != nil {
		return err
	}
	shown, status := keyPairView(x, &made).add("user_id", made.UserID), http.StatusCreated
	if private != "" {
		shown.add("private_key", private)
	}
	if !x.since(vKeyTypes) {
		status = http.StatusOK
	}
	return x.json(status, new(object).add("keypair", shown))
}

// maxUserID bounds the identifiers of users, as columns do.
const maxUserID = 255

// keyPairQuota refuses one more key pair for a user whose quota is used up.
func (a *API) keyPairQuota(x *exchange, user string, limits apidb.QuotaSet) error {
	pairs, err := a.store.KeyPairs(x.ctx(), user, "", 0)
	if err != nil {
		return err
	}
	return tooManyKeyPairs(int64(len(pairs)), limits)
}

func tooManyKeyPairs(has int64, limits apidb.QuotaSet) error {
	if most := keyPairs.limit(limits); most >= 0 && has >= most {
		return forbidden("Quota exceeded, too many key pairs.")
	}
	return nil
}

// deleteKeyPair answers DELETE /os-keypairs/{id}. Servers that were made with it keep it.
func (a *API) deleteKeyPair(x *exchange) error {
	user, _, err := keyPairUser(x, ruleKeyPairsDelete)
	if err != nil {
		return err
	}
	err = a.store.DeleteKeyPair(x.ctx(), user, x.param("id"))
	if errors.Is(err, apidb.ErrNotFound) {
		return noKeyPair(user, x.param("id"))
	}
	if err != nil {
		return err
	}
	if !x.since(vKeyTypes) {
		return x.empty(http.StatusAccepted)
	}
	return x.empty(http.StatusNoContent)
}

// requestedKey is the key pair of the caller that key_name names, the zero one for none.
func (a *API) requestedKey(x *exchange, asked *js.Object) (apidb.KeyPair, error) {
	name := memberString(asked, "key_name")
	if name == "" {
		return apidb.KeyPair{}, nil
	}
	k, err := a.store.KeyPair(x.ctx(), x.Who.User, name)
	if errors.Is(err, apidb.ErrNotFound) {
		return k, badRequest("Invalid key_name provided.")
	}
	return k, err
}

// checkPublicKey refuses what cannot be kept.
func checkPublicKey(key string) error {
	if len(key) > plugins.MaxPublicKey || strings.ContainsRune(key, 0) {
		return fmt.Errorf("a public key has at most %d bytes, and none of them is 0", plugins.MaxPublicKey)
	}
	return nil
}
