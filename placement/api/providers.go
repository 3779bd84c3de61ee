// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

func appendProvider(b []byte, p *ledger.Provider, v wire.Version) []byte {
	return wire.AppendProvider(b, wire.ProviderRow{
		UUID: p.UUID, Name: p.Name, Generation: p.Generation, Parent: p.Parent, Root: p.Root,
	}, v)
}

// changed is the time of the last change.
func changed(created, updated time.Time) time.Time {
	if updated.IsZero() {
		return created
	}
	return updated
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// provider is the current provider of the path.
func (x *exchange) provider() (*ledger.Snapshot, *ledger.Provider, error) {
	s, err := x.read()
	if err != nil {
		return nil, nil, err
	}
	uuid := x.R.PathValue("uuid")
	p, ok := s.Provider(uuid)
	if !ok {
		return nil, nil, providerNotFound(uuid)
	}
	return s, p, nil
}

// bodyForProvider reads the request body with decode. As in Placement, a missing provider (404)
// takes precedence over an invalid body (400).
func bodyForProvider[T any](x *exchange, decode func([]byte) (T, error)) (uuid string, value T, err error) {
	uuid = x.R.PathValue("uuid")
	body, err := x.Body()
	if err == nil {
		value, err = decode(body)
	}
	if err == nil {
		return uuid, value, nil
	}
	if s, unavailable := x.snapshot(); unavailable == nil {
		if _, ok := s.Provider(uuid); !ok {
			return uuid, value, providerNotFound(uuid)
		}
	}
	return uuid, value, err
}

// createProvider is POST /resource_providers.
func createProvider(x *exchange) error {
	body, err := x.Body()
	if err != nil {
		return err
	}
	wanted, err := wire.DecodeProviderCreate(body, x.v)
	if err != nil {
		return err
	}
	if wanted.UUID == "" {
		wanted.UUID = uuid.NewString()
	}
	var p *ledger.Provider
	err = x.update(func(tx *ledger.Tx) (err error) {
		p, err = tx.CreateProvider(ledger.NewProvider{UUID: wanted.UUID, Name: wanted.Name, Parent: wanted.Parent})
		return err
	})
	if err != nil {
		return explainProvider(err, wanted.UUID, wanted.Name)
	}
	x.setLocation("/resource_providers/" + p.UUID)
	if !x.v.Has(wire.ProviderInPostReply) {
		x.Send(http.StatusCreated, nil)
		return nil
	}
	return x.json(http.StatusOK, appendProvider(x.Buffer(), p, x.v), changed(p.CreatedAt, p.UpdatedAt))
}

// explainProvider explains why a provider could not be written. Clients match the phrase about the
// name.
func explainProvider(err error, uuid, name string) error {
	switch ledger.KindOf(err) {
	case ledger.DuplicateName:
		return fail(http.StatusConflict, wire.CodeDuplicateName,
			"Conflicting resource provider name: %s already exists.", name)
	case ledger.DuplicateUUID:
		return fail(http.StatusConflict, wire.CodeDuplicateName,
			"Conflicting resource provider uuid: %s already exists.", uuid)
	case ledger.ProviderNotFound:
		return providerNotFound(uuid)
	}
	return explain(err, nil, "Unable to save resource provider %s", shortened(uuid))
}

// showProvider is GET /resource_providers/{uuid}.
func showProvider(x *exchange) error {
	_, p, err := x.provider()
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, appendProvider(x.Buffer(), p, x.v), changed(p.CreatedAt, p.UpdatedAt))
}

// updateProvider is PUT /resource_providers/{uuid}.
func updateProvider(x *exchange) error {
	uuid, wanted, err := bodyForProvider(x,
		func(b []byte) (wire.ProviderUpdate, error) { return wire.DecodeProviderUpdate(b, x.v) })
	if err != nil {
		return err
	}
	change := ledger.ProviderUpdate{Name: wanted.Name, AllowReparent: x.v.Has(wire.Reparenting)}
	if wanted.Parent.Set {
		change.Parent = &wanted.Parent.UUID
	}
	var p *ledger.Provider
	err = x.update(func(tx *ledger.Tx) (err error) {
		p, err = tx.UpdateProvider(uuid, change)
		return err
	})
	if err != nil {
		return explainProvider(err, uuid, wanted.Name)
	}
	return x.json(http.StatusOK, appendProvider(x.Buffer(), p, x.v), changed(p.CreatedAt, p.UpdatedAt))
}

// deleteProvider is DELETE /resource_providers/{uuid}.
func deleteProvider(x *exchange) error {
	uuid := x.R.PathValue("uuid")
	err := x.update(func(tx *ledger.Tx) error { return tx.DeleteProvider(uuid) })
	if err != nil {
		return explain(err, nil, "Unable to delete resource provider %s", shortened(uuid))
	}
	return x.noContent()
}
