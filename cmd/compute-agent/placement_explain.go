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
		Use: "explain QUERY", Short: "Explain why a request for allocation candidates finds no hosts, or few", Args: cobra.ExactArgs(1),
		Long: "Explain why a request for allocation candidates finds no hosts, or few: how many providers and trees satisfy each of its\n" +
			"conditions. QUERY is that of GET /allocation_candidates, as Nova's scheduler and Placement log it; text up to a question mark\n" +
			"and after the query is ignored. The command asks the Placement of [placement_client] or --url, which must be compute-agent's\n" +
			"own.",
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
				return fmt.Errorf("cannot decode Placement's answer: %w", err)
			}
			return render.Explanation(screen(cmd.OutOrStdout()), &e)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().StringVar(&address, "url", "", "`URL` of the Placement to ask (placement_client.url)")
	cmd.Flags().StringVar(&version, "microversion", wire.Version(wire.RequestedExtensions).String(), "microversion `1.N` of the query")
	return cmd
}

// cleanQuery extracts the query from a log line and escapes it.
func cleanQuery(text string) (string, error) {
	text = strings.TrimSpace(text)
	if _, query, found := strings.Cut(text, "?"); found {
		// A query that was sent contains neither spaces nor quotes.
		text, _, _ = strings.Cut(strings.TrimLeft(query, " "), " ")
		text, _, _ = strings.Cut(text, `"`)
	}
	if strings.HasSuffix(text, "…") {
		return "", errors.New("the query is truncated; find the complete query in the log of its client")
	}
	text = strings.TrimPrefix(text, "&")
	if text == "" {
		return "", errors.New("the query is empty; an example is resources=VCPU:4")
	}
	// Keep the order: groups are searched in the order of the query.
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

// askingPlacement is a client of Placement for a command, for which a user is waiting.
func askingPlacement(c config.PlacementClient, microversion string) (client *placementclient.Client, closeIdle func(), err error) {
	a, err := access.New(c, nil, zerolog.Nop())
	if err != nil {
		return nil, nil, err
	}
	a.Retries, a.Microversion = 0, microversion
	client, err = placementclient.New(a.Config)
	return client, a.CloseIdle, err
}

// askForExplanation sends the query to Placement, with all extensions, and returns the answer.
func askForExplanation(ctx context.Context, c config.PlacementClient, query, version string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	client, closeIdle, err := askingPlacement(c, version)
	if err != nil {
		return nil, err
	}
	defer closeIdle()
	var answer json.RawMessage
	call := &placementclient.Call{
		Method: http.MethodGet, Path: "/allocation_candidates/explain?" + query, Out: &answer,
		Extensions: strings.Join(wire.Extensions[:], ", "),
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
		return nil, fmt.Errorf("asking Placement: %w; check that it runs, and the URL and certificates in --url or [placement_client]", err)
	case failed.Status == http.StatusNotFound && call.Header.Get(wire.HeaderVersion) != "":
		return nil, fmt.Errorf("the Placement at %s has no explanations (404): only compute-agent's own Placement does, from microversion 1.10 on", base)
	case errors.Is(err, placementclient.ErrRefused):
		return nil, fmt.Errorf("placement at %s denies the request (%d): %s; [placement_client] auth needs a user that is allowed to list allocation candidates",
			base, failed.Status, failed.Detail)
	case errors.Is(err, placementclient.ErrInvalid), errors.Is(err, placementclient.ErrTooOld):
		return nil, fmt.Errorf("placement at %s rejects the query (%d): %s", base, failed.Status, failed.Detail)
	default:
		return nil, fmt.Errorf("placement at %s: %w; check --url or [placement_client] url", base, err)
	}
}
