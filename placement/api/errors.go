// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// The most frequent errors of handlers.
var (
	badRequest = osapi.BadRequest
	notFound   = osapi.NotFound
	shortened  = osapi.Shortened
)

// fail is an error with an error code; [exchange.Explain] gives all others CodeUndefined.
func fail(status int, code wire.ErrorCode, format string, args ...any) *osapi.Error {
	e := osapi.Errorf(status, format, args...)
	e.Code = string(code)
	return e
}

// providerNotFound is the error of all paths below /resource_providers/{uuid} for a missing
// provider.
func providerNotFound(uuid string) *osapi.Error {
	return notFound("No resource provider with uuid %s found.", shortened(uuid))
}

// verdict is the status and the code for an error of the ledger.
type verdict struct {
	status int
	code   wire.ErrorCode
}

// verdicts are the default verdicts by kind of error. Handlers override them as Placement does: a
// missing class is a 404 if the path names it, and a 400 if the body names it.
var verdicts = map[ledger.Kind]verdict{
	ledger.ProviderNotFound:           {http.StatusNotFound, wire.CodeUndefined},
	ledger.ParentNotFound:             {http.StatusBadRequest, wire.CodeUndefined},
	ledger.ClassNotFound:              {http.StatusNotFound, wire.CodeUndefined},
	ledger.TraitNotFound:              {http.StatusNotFound, wire.CodeUndefined},
	ledger.ConsumerNotFound:           {http.StatusNotFound, wire.CodeUndefined},
	ledger.InventoryNotFound:          {http.StatusNotFound, wire.CodeUndefined},
	ledger.AllocationNotFound:         {http.StatusNotFound, wire.CodeUndefined},
	ledger.DuplicateName:              {http.StatusConflict, wire.CodeDuplicateName},
	ledger.DuplicateUUID:              {http.StatusConflict, wire.CodeDuplicateName},
	ledger.DuplicateConsumer:          {http.StatusBadRequest, wire.CodeUndefined},
	ledger.ProviderInUse:              {http.StatusConflict, wire.CodeProviderInUse},
	ledger.CannotDeleteParent:         {http.StatusConflict, wire.CodeCannotDeleteParent},
	ledger.InventoryInUse:             {http.StatusConflict, wire.CodeInventoryInUse},
	ledger.InventoryExists:            {http.StatusConflict, wire.CodeConcurrentUpdate},
	ledger.InvalidInventory:           {http.StatusBadRequest, wire.CodeUndefined},
	ledger.InvalidAllocation:          {http.StatusBadRequest, wire.CodeUndefined},
	ledger.InvalidName:                {http.StatusBadRequest, wire.CodeUndefined},
	ledger.InvalidParent:              {http.StatusBadRequest, wire.CodeUndefined},
	ledger.GenerationConflict:         {http.StatusConflict, wire.CodeConcurrentUpdate},
	ledger.ConsumerGenerationConflict: {http.StatusConflict, wire.CodeConcurrentUpdate},
	ledger.CapacityExceeded:           {http.StatusConflict, wire.CodeUndefined},
	ledger.AllocationConstraint:       {http.StatusConflict, wire.CodeUndefined},
	ledger.ClassInUse:                 {http.StatusConflict, wire.CodeUndefined},
	ledger.TraitInUse:                 {http.StatusConflict, wire.CodeUndefined},
	ledger.StandardClass:              {http.StatusBadRequest, wire.CodeUndefined},
	ledger.StandardTrait:              {http.StatusBadRequest, wire.CodeUndefined},
}

// refusals are the verdicts of one handler that differ from the default.
type refusals map[ledger.Kind]verdict

// verdict is the verdict of the handler on an error of a kind.
func (r refusals) verdict(kind ledger.Kind) (v verdict, ok bool) {
	if v, ok = r[kind]; ok {
		return v, true
	}
	v, ok = verdicts[kind]
	return v, ok
}

// explain makes an answer of the error of a transaction: "doing: error". It is nil for nil.
func explain(err error, own refusals, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var refused *ledger.Error
	if !errors.As(err, &refused) {
		return err
	}
	v, ok := own.verdict(refused.Kind)
	if !ok {
		return err
	}
	return fail(v.status, v.code, "%s: %s.", fmt.Sprintf(format, args...), refused.Error())
}

// Explain maps any error of a handler to its answer.
func (x *exchange) Explain(err error) *osapi.Error {
	e := errorOf(err)
	if e.Code == "" {
		e.Code = string(wire.CodeUndefined)
	}
	var bug *ledger.PanicError
	if errors.As(e.Cause, &bug) {
		x.LogBug(bug.Value, bug.Stack)
	}
	return e
}

func errorOf(err error) (e *osapi.Error) {
	var (
		body    *jsonkit.Error
		query   *wire.QueryError
		refused *ledger.Error
		large   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &body):
		return badRequest("%s.", body.Error())
	case errors.As(err, &query):
		return fail(http.StatusBadRequest, query.Code, "%s", query.Message)
	case errors.As(err, &refused):
		if v, ok := verdicts[refused.Kind]; ok {
			return fail(v.status, v.code, "%s.", refused.Error())
		}
	case errors.As(err, &large):
		return osapi.Errorf(http.StatusRequestEntityTooLarge,
			"The body is larger than the %d bytes that this server reads.", large.Limit)
	case errors.Is(err, ledger.ErrBusy):
		e = fail(http.StatusConflict, wire.CodeConcurrentUpdate,
			"Other servers keep changing the data at the same time. Read again and retry the request.")
		e.Retry = true
	case errors.Is(err, ledger.ErrClosed):
		e = osapi.Unavailable("The server is shutting down. Send the request to another one, or again when it is back.")
	case errors.Is(err, ledger.ErrOutcomeUnknown):
		e = osapi.Errorf(http.StatusInternalServerError,
			"The outcome of the change is not known. Read before you repeat the request.")
	case errors.Is(err, ledger.ErrRow):
		e = badRequest("The database does not take a value of the request: it may have letters that the database's " +
			"character set lacks. Nothing was changed.")
	case errors.Is(err, ledger.ErrFull):
		e = osapi.Unavailable(
			"The disk with the database is full: nothing was changed. Send the request again when there is room; " +
				"reading is possible.")
	case errors.Is(err, ledger.ErrHandedBack):
		e = osapi.Unavailable(
			"The database was handed back to OpenStack's Placement, and this server has to be stopped: nothing " +
				"was changed.")
	case errors.Is(err, ledger.ErrReplaced):
		e = osapi.Unavailable(
			"The tables of the database were made again, and this server has to be restarted: nothing was changed.")
	case errors.Is(err, ledger.ErrSchema):
		e = osapi.Unavailable(
			"The tables of the database are those of another version of this program, and this server has to be " +
				"stopped: nothing was changed.")
	case errors.Is(err, ledger.ErrUnavailable):
		e = osapi.Unavailable(
			"The database cannot be used now: nothing was changed. The server's log says why, under the request id " +
				"of this answer.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		e = osapi.Errorf(http.StatusRequestTimeout, "The request did not arrive in time.")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e = osapi.Errorf(http.StatusServiceUnavailable, "The request was canceled before it was done.")
	case errors.Is(err, osapi.ErrBug):
		return osapi.Errorf(http.StatusInternalServerError,
			"The server hit a bug. Its log has more, under the request id of this answer.")
	}
	if e == nil {
		e = osapi.Errorf(http.StatusInternalServerError,
			"The request failed in the server. Its log has the reason, under the request id of this answer.")
	}
	return e.Because(err)
}
