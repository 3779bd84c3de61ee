// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// failure is an answer that says no: a status, an error code and a sentence for people.
type failure struct {
	status int
	code   wire.ErrorCode
	detail string
	// allow is the value of the Allow header of a 405.
	allow string
	// challenge is the value of the WWW-Authenticate header of a 401.
	challenge string
	// retry says that the same request may well succeed in a moment.
	retry bool
	// cause is what the log shall know and the client shall not.
	cause error
	// hint is what the log tells the operator to do.
	hint string
}

func (f *failure) Error() string { return f.detail }

func (f *failure) Unwrap() error { return f.cause }

func fail(status int, code wire.ErrorCode, format string, args ...any) *failure {
	return &failure{status: status, code: code, detail: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *failure {
	return fail(http.StatusBadRequest, wire.CodeUndefined, format, args...)
}

func notFound(format string, args ...any) *failure {
	return fail(http.StatusNotFound, wire.CodeUndefined, format, args...)
}

// providerNotFound is what everything below /resource_providers/{uuid} answers when the provider is not there.
func providerNotFound(uuid string) *failure {
	return notFound("No resource provider with uuid %s found.", shortened(uuid))
}

// shortened keeps what a client sent from filling error bodies and logs.
func shortened(s string) string {
	const most = 256
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// verdict is the status and the code that a refusal of the ledger gets.
type verdict struct {
	status int
	code   wire.ErrorCode
}

// verdicts are the usual ones for each kind of refusal. Handlers give others where Placement does: a class that is not
// there is a 404 for a request that names it in its path, and a 400 for one that names it in its body.
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

// refusals are the verdicts of one handler that are not the usual ones.
type refusals map[ledger.Kind]verdict

// explain turns what a transaction returned into a failure: "doing: what the ledger says". It is nil for a nil error.
func explain(err error, own refusals, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var refused *ledger.Error
	if !errors.As(err, &refused) {
		return err
	}
	v, ok := own[refused.Kind]
	if !ok {
		if v, ok = verdicts[refused.Kind]; !ok {
			return err
		}
	}
	return fail(v.status, v.code, "%s: %s.", fmt.Sprintf(format, args...), refused.Error())
}

// failureOf finds the answer that any error of a handler gets.
func failureOf(err error) *failure {
	var (
		f       *failure
		body    *jsonkit.Error
		refused *ledger.Error
		large   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &body):
		return badRequest("%s.", body.Error())
	case errors.As(err, &refused):
		if v, ok := verdicts[refused.Kind]; ok {
			return fail(v.status, v.code, "%s.", refused.Error())
		}
	case errors.As(err, &large):
		return fail(http.StatusRequestEntityTooLarge, wire.CodeUndefined, "The body is larger than the %d bytes that this server reads.", large.Limit)
	case errors.Is(err, ledger.ErrBusy):
		f = fail(http.StatusConflict, wire.CodeConcurrentUpdate, "Other servers changed the data at the same time, again and again. Read again and retry the request.")
		f.retry = true
	case errors.Is(err, ledger.ErrClosed):
		f = fail(http.StatusServiceUnavailable, wire.CodeUndefined, "The server is shutting down. Send the request to another one, or again when it is back.")
		f.retry = true
	case errors.Is(err, ledger.ErrOutcomeUnknown):
		f = fail(http.StatusInternalServerError, wire.CodeUndefined, "The database did not tell whether the change was made. Read before you repeat the request.")
	case errors.Is(err, ledger.ErrFull):
		f = fail(http.StatusServiceUnavailable, wire.CodeUndefined, "The disk with the database is full: nothing was changed. Send the request again when there is room; reading is possible.")
		f.retry = true
	case errors.Is(err, ledger.ErrUnavailable):
		f = fail(http.StatusServiceUnavailable, wire.CodeUndefined, "The database cannot be used now: nothing was changed. The server's log says why, under the request id of this answer.")
		f.retry = true
	case errors.Is(err, os.ErrDeadlineExceeded):
		f = fail(http.StatusRequestTimeout, wire.CodeUndefined, "The request did not arrive in time.")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		f = fail(http.StatusServiceUnavailable, wire.CodeUndefined, "The request was given up before it was done.")
	}
	if f == nil {
		f = fail(http.StatusInternalServerError, wire.CodeUndefined, "The server could not do this. Its log says why, under the request id of this answer.")
	}
	f.cause = err
	return f
}
