// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// listClasses is GET /resource_classes.
func listClasses(x *exchange) error {
	s, err := x.read()
	if err != nil {
		return err
	}
	var modified time.Time
	b := append(x.Buffer(), `{"resource_classes":[`...)
	for _, c := range s.Classes() {
		b = wire.AppendResourceClass(jsonkit.AppendComma(b), c.Name)
		modified = latest(modified, changed(c.CreatedAt, c.UpdatedAt))
	}
	b = append(b, "]}"...)
	return x.json(http.StatusOK, b, modified)
}

// showClass is GET /resource_classes/{name}.
func showClass(x *exchange) error {
	s, err := x.read()
	if err != nil {
		return err
	}
	name := x.R.PathValue("name")
	c, ok := s.Class(name)
	if !ok {
		return notFound("No such resource class %s.", shortened(name))
	}
	return x.json(http.StatusOK, wire.AppendResourceClass(x.Buffer(), c.Name), changed(c.CreatedAt, c.UpdatedAt))
}

// createClass is POST /resource_classes.
func createClass(x *exchange) error {
	body, err := x.Body()
	if err != nil {
		return err
	}
	name, err := wire.DecodeResourceClass(body)
	if err != nil {
		return err
	}
	created := false
	err = x.update(func(tx *ledger.Tx) (err error) {
		_, created, err = tx.CreateClass(name)
		return err
	})
	if err != nil {
		return explain(err, nil, "Unable to create resource class %s", name)
	}
	if !created {
		return osapi.Errorf(http.StatusConflict, "Conflicting resource class already exists: %s.", name)
	}
	x.setLocation("/resource_classes/" + name)
	x.Send(http.StatusCreated, nil)
	return nil
}

// putClass is PUT /resource_classes/{name}: from 1.7 on it creates or finds the class; before, it
// renames it.
func putClass(x *exchange) error {
	if !x.v.Has(wire.BodilessClassPut) {
		return renameClass(x)
	}
	if err := x.authorize(UpdateClass, ""); err != nil {
		return err
	}
	name := x.R.PathValue("name")
	if !providertree.IsCustomName(name) {
		return badRequest(
			"The resource class is invalid: a name must begin with CUSTOM_, go on with A-Z, 0-9 and _, and have at " +
				"most 255 characters.")
	}
	s, err := x.snapshot()
	if err != nil {
		return err
	}
	status := http.StatusNoContent
	if _, ok := s.Class(name); !ok {
		created := false
		err := x.update(func(tx *ledger.Tx) (err error) {
			_, created, err = tx.CreateClass(name)
			return err
		})
		if err != nil {
			return explain(err, nil, "Unable to create resource class %s", name)
		}
		if created {
			status = http.StatusCreated
		}
	}
	x.setLocation("/resource_classes/" + name)
	x.Send(status, nil)
	return nil
}

func renameClass(x *exchange) error {
	if err := x.checkHeaders(sendsJSON); err != nil {
		return err
	}
	if err := x.authorize(UpdateClass, ""); err != nil {
		return err
	}
	body, err := x.Body()
	if err != nil {
		return err
	}
	wanted, err := wire.DecodeResourceClass(body)
	if err != nil {
		return err
	}
	name := x.R.PathValue("name")
	err = x.update(func(tx *ledger.Tx) error { return tx.RenameClass(name, wanted) })
	if ledger.KindOf(err) == ledger.DuplicateName {
		return osapi.Errorf(http.StatusConflict, "Resource class already exists: %s.", wanted)
	}
	if err != nil {
		return explain(err, nil, "Unable to rename resource class %s", shortened(name))
	}
	return x.json(http.StatusOK, wire.AppendResourceClass(x.Buffer(), wanted), time.Time{})
}

// deleteClass is DELETE /resource_classes/{name}.
func deleteClass(x *exchange) error {
	name := x.R.PathValue("name")
	err := x.update(func(tx *ledger.Tx) error { return tx.DeleteClass(name) })
	if err != nil {
		return explain(err, nil, "Unable to delete resource class %s", shortened(name))
	}
	return x.noContent()
}
