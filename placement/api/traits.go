// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// listTraits is GET /traits.
func listTraits(x *exchange) error {
	wanted, err := readTraitQuery(x.R.URL.RawQuery)
	if err != nil {
		return err
	}
	s, err := x.read()
	if err != nil {
		return err
	}
	var modified time.Time
	b := append(x.Buffer(), `{"traits":[`...)
	for _, t := range s.Traits() {
		if !wanted(s, t.Name) {
			continue
		}
		b = jsonkit.AppendString(jsonkit.AppendComma(b), t.Name)
		modified = latest(modified, changed(t.CreatedAt, t.UpdatedAt))
	}
	b = append(b, "]}"...)
	return x.json(http.StatusOK, b, modified)
}

// traitParameters are the parameters of GET /traits.
var traitParameters = []wire.Parameter{
	{Name: "name", Text: "startswith:PREFIX or in:TRAIT,TRAIT,…: those of such names."},
	{Name: "associated", Text: "Those that a resource provider has, or that none has."},
}

// readTraitQuery reads name=startswith:PREFIX, name=in:A,B and associated=true|false. The result
// reports whether the query includes a trait. As in Placement, name=OTHER:… includes all.
func readTraitQuery(raw string) (func(s *ledger.Snapshot, name string) bool, error) {
	q, err := wire.ReadQuery(raw)
	if err != nil {
		return nil, err
	}
	for _, p := range q {
		if !slices.ContainsFunc(traitParameters, func(known wire.Parameter) bool { return known.Name == p.Key }) {
			return nil, badRequest("Invalid query string parameters: %q is not a parameter of this call.",
				shortened(p.Key))
		}
	}
	named := func(string) bool { return true }
	if value, ok := q.Last("name"); ok {
		operator, operand, ok := strings.Cut(value, ":")
		if !ok {
			return nil, badRequest(
				"Badly formatted name parameter. It should be ?name=in:NAME1,NAME2 or "+
					"?name=startswith:PREFIX. Got: %q.", shortened(value))
		}
		switch operator {
		case "in":
			names := strings.Split(operand, ",")
			named = func(name string) bool { return slices.Contains(names, name) }
		case "startswith":
			named = func(name string) bool { return strings.HasPrefix(name, operand) }
		}
	}
	value, ok := q.Last("associated")
	if !ok {
		return func(_ *ledger.Snapshot, name string) bool { return named(name) }, nil
	}
	value = strings.ToLower(value)
	if value != "true" && value != "false" {
		return nil, badRequest("The query parameter \"associated\" only accepts \"true\" or \"false\".")
	}
	return func(s *ledger.Snapshot, name string) bool {
		return named(name) && s.TraitInUse(name) == (value == "true")
	}, nil
}

// showTrait is GET /traits/{name}, whose status is the answer.
func showTrait(x *exchange) error {
	s, err := x.read()
	if err != nil {
		return err
	}
	name := x.R.PathValue("name")
	t, ok := s.Trait(name)
	if !ok {
		return notFound("No such trait(s): %s.", shortened(name))
	}
	x.cacheHeaders(t.CreatedAt)
	return x.noContent()
}

// putTrait is PUT /traits/{name}, which creates or finds the trait.
func putTrait(x *exchange) error {
	name := x.R.PathValue("name")
	if !providertree.IsCustomName(name) {
		return badRequest(
			"The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix " +
				"\"CUSTOM_\" and use following characters: \"A\"-\"Z\", \"0\"-\"9\" and \"_\".",
		)
	}
	s, err := x.snapshot()
	if err != nil {
		return err
	}
	status := http.StatusNoContent
	t, ok := s.Trait(name)
	if !ok {
		var created bool
		err := x.update(func(tx *ledger.Tx) (err error) {
			t, created, err = tx.CreateTrait(name)
			return err
		})
		if err != nil {
			return explain(err, nil, "Unable to create trait %s", name)
		}
		if created {
			status = http.StatusCreated
		}
	}
	x.setLocation("/traits/" + name)
	x.cacheHeaders(t.CreatedAt)
	x.Send(status, nil)
	return nil
}

// deleteTrait is DELETE /traits/{name}.
func deleteTrait(x *exchange) error {
	name := x.R.PathValue("name")
	err := x.update(func(tx *ledger.Tx) error { return tx.DeleteTrait(name) })
	if err != nil {
		return explain(err, nil, "Unable to delete trait %s", shortened(name))
	}
	return x.noContent()
}
