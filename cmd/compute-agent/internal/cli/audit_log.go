// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// AuditDatabase runs a command that may change all rows of a service's database, and records it as
// one change: who ran it, on which database, and what do returns of it; nil: it changed nothing.
// Before it changes anything it finds out whether a required log can be written.
func AuditDatabase(
	cmd *cobra.Command, service string, cfg *config.Config, database string, do func() (did any, err error),
) error {
	audit := ServingOf(cmd.Context()).Placement.Audit()
	if audit == nil && cfg != nil {
		var err error
		if audit, err = controlplane.OpenAudit(cfg, true, NewLogger(cfg, cmd.ErrOrStderr())); err != nil {
			return err
		}
		defer func() { _ = audit.Close() }() // what is lost is logged
	}
	if err := audit.Refusal(); err != nil {
		return fmt.Errorf("nothing was changed, because the audit log cannot be written to: %w", err)
	}
	did, err := do()
	if did != nil {
		audit.ForService(service).Write(context.WithoutCancel(cmd.Context()), auditlog.Record{
			Command: commandLine(cmd), User: sqldb.CommandUser(cmd.Context()),
			Changes: []auditlog.Change{{Kind: auditlog.KindDatabase, ID: database, After: auditlog.Value(did)}},
		})
	}
	return err
}

// commandLine is a command as the audit log has it.
func commandLine(cmd *cobra.Command) string {
	return strings.TrimSuffix(strings.Join(ArgsOf(cmd), " "), " --")
}

// AuditCommand runs a command, and records what it changes in an audit log as changed by the user
// who runs it.
func AuditCommand(cmd *cobra.Command, audit *auditlog.Log, do func() error) error {
	ctx, trail := audit.ForService(cells.AuditService).
		Begin(cmd.Context(), auditlog.Record{Command: commandLine(cmd), User: sqldb.CommandUser(cmd.Context())})
	cmd.SetContext(ctx)
	err := do()
	trail.Write(context.WithoutCancel(ctx)) // what is done is recorded, also if the command was interrupted
	return err
}
