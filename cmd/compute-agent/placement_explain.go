// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

func newPlacementExplain() *cobra.Command {
	var opts options
	var address, version string
	cmd := &cobra.Command{
		Use: "explain QUERY", Short: "Say why a request for allocation candidates finds no host, or few", Args: cobra.ExactArgs(1),
		Long: "Say why a request for allocation candidates finds no host, or few: what each of its conditions leaves of the providers\n" +
			"and of the trees. QUERY is that of GET /allocation_candidates, as Nova's scheduler and Placement log it; all up to a\n" +
			"question mark is left out, and all after the query. The Placement of [placement_client] is asked, or that of --url; it must be compute-agent's own.",
		Example: "  compute-agent placement explain 'resources=VCPU:4,MEMORY_MB:8192&required=HW_CPU_X86_AVX2'",
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := cleanQuery(args[0])
			if err != nil {
				return &exitError{exitUsage, err}
			}
			if address != "" {
				opts.extra = append(opts.extra, config.Override{Key: "placement_client.url", Value: address, Flag: "--url"})
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			raw, err := askForExplanation(cmd.Context(), cfg.PlacementClient, query, version)
			if err != nil {
				return err
			}
			if opts.json() {
				return printJSON(cmd.OutOrStdout(), json.RawMessage(raw))
			}
			var e candidates.Explanation
			if err := json.Unmarshal(raw, &e); err != nil {
				return fmt.Errorf("the answer of Placement is no explanation: %w", err)
			}
			return render.Explanation(cmd.OutOrStdout(), &e)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&address, "url", "", "`URL` of the Placement to ask (placement_client.url)")
	cmd.Flags().StringVar(&version, "microversion", wire.MaxVersion.String(), "microversion `1.N` that the query is written for")
	return cmd
}

// cleanQuery takes away what stands before and after the query in a log, and escapes what has to be.
func cleanQuery(text string) (string, error) {
	text = strings.TrimSpace(text)
	if _, query, found := strings.Cut(text, "?"); found {
		// A query that was sent has neither blanks nor quotes.
		text, _, _ = strings.Cut(strings.TrimLeft(query, " "), " ")
		text, _, _ = strings.Cut(text, `"`)
	}
	if strings.HasSuffix(text, "…") {
		return "", errors.New("the query was cut short where it was logged, so that its answer would be another one's; look for it whole in the log of its sender")
	}
	text = strings.TrimPrefix(text, "&")
	if text == "" {
		return "", errors.New("the query is empty; it is such as resources=VCPU:4")
	}
	// The order counts: that of the groups is that in which their names are looked up.
	var parts []string
	for part := range strings.SplitSeq(text, "&") {
		key, value, found := strings.Cut(part, "=")
		k, err := url.QueryUnescape(key)
		v, err2 := url.QueryUnescape(value)
		if err := errors.Join(err, err2); err != nil || !found {
			return "", fmt.Errorf("%q in the query is not NAME=VALUE, such as resources=VCPU:4", part)
		}
		parts = append(parts, url.QueryEscape(k)+"="+url.QueryEscape(v))
	}
	return strings.Join(parts, "&"), nil
}

// askForExplanation asks the Placement that c describes, with all extensions, and returns its answer.
func askForExplanation(ctx context.Context, c config.PlacementClient, query, version string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	a, err := access.New(c, nil, zerolog.Nop())
	if err != nil {
		return nil, err
	}
	defer a.CloseIdle()
	a.Retries = 0 // a person waits
	client, err := placementclient.New(a.Config)
	if err != nil {
		return nil, err
	}
	var answer json.RawMessage
	call := &placementclient.Call{
		Method: http.MethodGet, Path: "/allocation_candidates/explain?" + query, Out: &answer,
		Microversion: version, Extensions: strings.Join(wire.Extensions, ", "),
	}
	err = client.Send(ctx, call)
	var failed *placementclient.Error
	switch base := client.Endpoint(); {
	case err == nil:
		return answer, nil
	case !errors.As(err, &failed):
		return nil, err
	case failed.Status == 0 && errors.Is(err, placementclient.ErrRefused):
		return nil, failed.Cause
	case failed.Status == 0:
		return nil, fmt.Errorf("ask Placement: %w; check that it runs there, and that --url or [placement_client] says where it is and what to trust", err)
	case failed.Status == http.StatusNotFound && call.Header.Get(wire.HeaderVersion) != "":
		return nil, fmt.Errorf("the Placement at %s does not explain (404): only compute-agent's own does, from microversion 1.10 on", base)
	case errors.Is(err, placementclient.ErrRefused):
		return nil, fmt.Errorf("placement at %s does not let us ask (%d): %s; it has to be a token of a user who may list allocation candidates: [placement_client] auth and what belongs to it",
			base, failed.Status, failed.Detail)
	case errors.Is(err, placementclient.ErrInvalid), errors.Is(err, placementclient.ErrTooOld):
		return nil, fmt.Errorf("placement at %s refuses the query (%d): %s", base, failed.Status, failed.Detail)
	default:
		return nil, fmt.Errorf("placement at %s: %w; check --url or [placement_client] url", base, err)
	}
}
