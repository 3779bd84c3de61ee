// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
)

// WithProgressOf is WithProgress for what returns something.
func WithProgressOf[T any](cmd *cobra.Command, what string, do func(p *render.Progress) (T, error)) (out T, err error) {
	err = WithProgress(cmd, what, func(p *render.Progress) (err error) {
		out, err = do(p)
		return err
	})
	return out, err
}

// WithProgress runs do, which prints nothing, and shows on standard error that it works if that
// takes long. A service that runs the command for another process shows nothing: that process does.
func WithProgress(cmd *cobra.Command, what string, do func(p *render.Progress) error) error {
	if ServingOf(cmd.Context()).Config != nil {
		return do(nil)
	}
	p := render.NewProgress(Screen(cmd.ErrOrStderr()), what)
	defer p.End()
	return do(p)
}
