// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
)

// withProgressOf is withProgress for what returns something.
func withProgressOf[T any](cmd *cobra.Command, what string, do func(p *render.Progress) (T, error)) (out T, err error) {
	err = withProgress(cmd, what, func(p *render.Progress) (err error) {
		out, err = do(p)
		return err
	})
	return out, err
}

// withProgress runs do, which prints nothing, and shows on standard error that it works if that
// takes long. A service that runs the command for another process shows nothing: that process does.
func withProgress(cmd *cobra.Command, what string, do func(p *render.Progress) error) error {
	if servingOf(cmd.Context()).cfg != nil {
		return do(nil)
	}
	p := render.NewProgress(screen(cmd.ErrOrStderr()), what)
	defer p.End()
	return do(p)
}
