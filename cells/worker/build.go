// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Of a fault, in bytes: what Nova keeps of a message, and enough of the details for a thousand of
// them in one request.
const (
	maxFault   = 255
	maxDetails = 2000
)

// build creates the guest of a server that was never active. Its allocations are read before every
// attempt, so that a server whose allocations were removed in the meantime is not created.
func (w *Worker) build(ctx context.Context, s *server, item cellwire.WorkItem, node Node) error {
	if fault := w.faultOf(s); fault != nil {
		return w.fail(ctx, s, item, *fault)
	}
	spec, tree, err := w.specFor(ctx, s, item, node)
	var permanent *permanentError
	switch {
	case errors.As(err, &permanent):
		return w.abandon(ctx, s, item, node, permanent.reason, permanent.details)
	case err != nil:
		return err
	}
	if !w.isCurrent(s, item) { // the desired state changed
		return nil
	}
	w.firstAttempt(s)
	before := w.attempted(s)
	w.setAttempted(s, true)
	is, err := node.Manager.Spawn(ctx, node.Name, spec, tree)
	for _, promise := range []error{plugins.ErrNotReady, plugins.ErrUnsupported, ErrImpossible} {
		if errors.Is(err, promise) { // nothing was begun
			w.setAttempted(s, before)
		}
	}
	w.count(func(c *Counts) { c.Spawns.count(err) })
	var fault *plugins.InstanceFault
	switch {
	case err == nil:
		w.logOf(ctx).Info().Str("instance", s.uuid).Str("node", node.Name).Stringer("power", is.Power).
			Msg("Created the guest of a server.")
		w.report(s, item, cellwire.Report{Kind: cellwire.ReportSpawned, PowerState: is.Power})
		return nil
	case errors.As(err, &fault): // nothing is left of it
		w.setAttempted(s, false)
		if err := w.awaitDeleted(s, node, fault); err != nil {
			return err
		}
		return w.fail(ctx, s, item, faultFor(s.uuid, fault.Reason, err.Error()))
	case errors.Is(err, plugins.ErrUnsupported):
		w.recheckNode(node) // the node must not be reported to the cell
		return w.abandon(ctx, s, item, node, "its host cannot create guests", err.Error())
	case errors.Is(err, ErrImpossible):
		return w.abandon(ctx, s, item, node, "its host cannot create such a server", err.Error())
	}
	if limit := w.cfg.BuildTimeout; limit > 0 && time.Since(w.firstAttempt(s)) >= limit {
		return w.abandon(ctx, s, item, node, fmt.Sprintf("its host could not create it within %s", limit), err.Error())
	}
	return fmt.Errorf("creating the guest: %w", err)
}

// permanentError says that a guest cannot be made, and that waiting does not help.
type permanentError struct {
	reason  string // for the owner
	details string
}

func (e *permanentError) Error() string { return e.reason + ": " + e.details }

// specFor is what a guest is made of. Its allocations are read each time. The error is
// *permanentError if there is nothing to wait for.
func (w *Worker) specFor(
	ctx context.Context, s *server, item cellwire.WorkItem, node Node,
) (plugins.InstanceSpec, *providertree.Tree, error) {
	none := plugins.InstanceSpec{}
	granted, err := w.cfg.Allocations.Granted(ctx, s.uuid)
	if err != nil {
		return none, nil, fmt.Errorf("reading its allocations: %w", err)
	}
	if len(granted) == 0 {
		return none, nil, &permanentError{"its allocations were removed",
			"Placement has no allocations of this consumer"}
	}
	tree := node.Tree()
	if tree == nil {
		return none, nil, fmt.Errorf("the provider tree of node %s is not known yet", node.Name)
	}
	if missing := missingProviders(tree, granted); len(missing) > 0 {
		err := fmt.Errorf("it has allocations on resource providers that are not in the tree of node %s: %s",
			node.Name, strings.Join(missing, ", "))
		if time.Since(w.firstAttempt(s)) < treeTimeout { // they may be new
			return none, nil, err
		}
		return none, nil, &permanentError{"its allocations are not on its host", err.Error()}
	}
	spec, err := specOf(item.Server, granted)
	if err != nil {
		return none, nil, &permanentError{err.Error(), err.Error()}
	}
	spec.UUID = s.uuid
	return spec, tree, nil
}

// deletedServersOn counts the servers on a node that are deleted but whose guests still exist: a
// server that was deleted while this host was down has no allocations any more, but its guest still
// uses the CPUs and devices that were allocated to other servers since.
func (w *Worker) deletedServersOn(node Node) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.servers {
		if s.known && s.item.Want == cellwire.WantGone && !s.answered && node.matches(w.nodeRef(s.item)) {
			n++
		}
	}
	if !w.complete { // there may be others
		n++
	}
	return n
}

// awaitDeleted returns an error, after which a guest that could not be created is tried again, as
// long as guests of deleted servers may use what it lacks. It returns nil if there are none, or if
// the server has waited long enough.
func (w *Worker) awaitDeleted(s *server, node Node, cause error) error {
	if leaving := w.deletedServersOn(node); leaving > 0 && time.Since(w.firstAttempt(s)) < deletedGuestsTimeout {
		return fmt.Errorf("%d deleted servers are still on its node and may use its resources: %w", leaving, cause)
	}
	return nil
}

// abandon gives up a server for a reason other than a failed Spawn, after removing what an earlier
// attempt left. The row can come from an old backup of the cell's database. So a guest that runs is
// kept and reported as created, and a guest that does not run is removed only if this process began
// to create it.
func (w *Worker) abandon(
	ctx context.Context, s *server, item cellwire.WorkItem, node Node, reason, details string,
) error {
	if !w.isCurrent(s, item) {
		return nil
	}
	guest, err := find(ctx, node, s.uuid)
	switch {
	case errors.Is(err, plugins.ErrUnsupported) && !w.attempted(s):
		return w.fail(ctx, s, item, faultFor(s.uuid, reason, details))
	case err != nil:
		return fmt.Errorf("%s; looking for the remains of an attempt to create it: %w", reason, err)
	case guest == nil:
	case guest.Power == plugins.PowerRunning || guest.Power == plugins.PowerPaused ||
		guest.Power == plugins.PowerSuspended:
		w.logOf(ctx).Error().Str("instance", s.uuid).Str("node", node.Name).Str("reason", details).
			Msg("A server cannot be built, but its guest exists and has been started. The guest is kept and " +
				"reported as created; `compute-agent allocations audit` shows which allocations it lacks.")
		w.report(s, item, cellwire.Report{Kind: cellwire.ReportSpawned, PowerState: guest.Power})
		return nil
	case !w.attempted(s):
		return fmt.Errorf(
			"%w: %s, and its guest exists, does not run and may hold data; if it holds none, delete the server",
			errNeedsOperator, reason)
	}
	err = node.Manager.Destroy(ctx, node.Name, s.uuid)
	var fault *plugins.InstanceFault
	switch {
	case err == nil, errors.As(err, &fault): // a guest with that uuid that is not this agent's is not this server's
	default:
		return fmt.Errorf("%s; removing the remains of an attempt to create it: %w", reason, err)
	}
	return w.fail(ctx, s, item, faultFor(s.uuid, reason, details))
}

// find looks for an instance; nil: not found.
func find(ctx context.Context, node Node, uuid string) (*plugins.Instance, error) {
	all, err := node.Manager.Instances(ctx, node.Name)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(is plugins.Instance) bool { return is.UUID == uuid }); i >= 0 {
		return &all[i], nil
	}
	return nil, nil
}

// powerOf is the power state of an instance, PowerNoState if it is not found.
func powerOf(ctx context.Context, node Node, uuid string) (plugins.PowerState, error) {
	guest, err := find(ctx, node, uuid)
	if err != nil || guest == nil {
		return plugins.PowerNoState, err
	}
	return guest.Power, nil
}

// fail gives back what was granted to a server of which nothing is left here, and reports why it
// cannot be made.
func (w *Worker) fail(ctx context.Context, s *server, item cellwire.WorkItem, fault cellwire.Fault) error {
	w.mu.Lock()
	s.fault = &fault
	w.mu.Unlock()
	if !w.isCurrent(s, item) { // its deletion removes them, too
		return nil
	}
	if err := w.cfg.Allocations.Remove(ctx, s.uuid); err != nil {
		return fmt.Errorf("%s; removing its allocations: %w", fault.Message, err)
	}
	w.logOf(ctx).Warn().
		Str("instance", s.uuid).
		Str("reason", fault.Message).
		Str("details", fault.Details).
		Msg("Cannot build a server on this host. Its allocations are removed, and the failure is reported to the cell.")
	w.report(s, item, cellwire.Report{Kind: cellwire.ReportFailed, PowerState: plugins.PowerNoState, Fault: &fault})
	return nil
}

// faultFor is the fault that the owner of a server reads, in Nova's words for aborted builds.
func faultFor(uuid, reason, details string) cellwire.Fault {
	return cellwire.Fault{
		Code: 500, Message: truncate(fmt.Sprintf("Build of instance %s aborted: %s", uuid, reason), maxFault),
		Details: clipMiddle(details), Created: time.Now().UTC(),
	}
}

// truncate is the beginning of a text, of at most so many bytes; it is valid UTF-8.
func truncate(text string, maxBytes int) string {
	return textutil.Truncate(strings.ToValidUTF8(text, "�"), maxBytes)
}

// clipMiddle is the beginning and the end of details that are longer than maxDetails, in whole
// characters: an error often ends with its cause, after a long command.
func clipMiddle(text string) string {
	const gap = " … "
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= maxDetails {
		return text
	}
	head := truncate(text, maxDetails/3)
	tail := text[len(text)-(maxDetails-len(head)-len(gap)):]
	for tail != "" && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return head + gap + tail
}

// missingProviders are the providers that were granted from and are not in the tree.
func missingProviders(tree *providertree.Tree, granted providertree.ProviderResources) []string {
	var out []string
	for _, uuid := range slices.Sorted(maps.Keys(granted)) {
		if !tree.Exists(uuid) {
			out = append(out, uuid)
		}
	}
	return out
}

// specOf is the driver's spec of a server. An error is for its owner.
func specOf(s cellwire.Server, granted providertree.ProviderResources) (plugins.InstanceSpec, error) {
	data, err := base64.StdEncoding.DecodeString(s.UserData)
	if err != nil {
		return plugins.InstanceSpec{}, errors.New("its user data is not base64")
	}
	return plugins.InstanceSpec{
		UUID: s.UUID, Name: s.Name, ProjectID: s.ProjectID, UserID: s.UserID,
		Flavor: s.Flavor.Flavor, Allocations: granted, Image: s.ImageRef, Metadata: s.Metadata, UserData: data,
		KeyName: s.KeyName, PublicKey: s.KeyData, ConfigDrive: s.ConfigDrive,
	}, nil
}

func (w *Worker) faultOf(s *server) *cellwire.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.fault
}

// firstAttempt returns when a server was first to be made.
func (w *Worker) firstAttempt(s *server) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.begun.IsZero() {
		s.begun = time.Now()
	}
	return s.begun
}

func (w *Worker) setAttempted(s *server, attempted bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.attempted = attempted
}

func (w *Worker) attempted(s *server) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.attempted
}
