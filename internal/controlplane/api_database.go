// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/api"
)

// APIDatabase is which API database the commands of an operator are for.
type APIDatabase struct {
	engine.Address
	Name string // to open it by; it may have a password
}

// APIDatabaseOf is the API database that a configuration names.
func APIDatabaseOf(cfg *config.Config) (APIDatabase, error) {
	address, name, err := cells.DatabaseOf(cfg.ComputeAPI.Database, cfg.Agent.StateDir, cells.APIDatabase)
	return APIDatabase{address, name}, err
}

// Exists says whether there is an API database: a file, or tables on the servers.
func (d APIDatabase) Exists(ctx context.Context) (bool, error) {
	if d.Shared() {
		has, _, err := apidb.Version(ctx, d.Name)
		return has > 0, err
	}
	_, err := os.Stat(d.Path)
	return !errors.Is(err, fs.ErrNotExist), nil
}

// KnownHosts are the names of all hosts that the compute API of a configuration knows: of its
// database, or, if that is a file which the compute API has open, as it lists them.
func KnownHosts(ctx context.Context, cfg *config.Config) (hosts []string, err error) {
	at, err := APIDatabaseOf(cfg)
	if err != nil {
		return nil, err
	}
	exists, err := at.Exists(ctx)
	if err == nil && !exists {
		err = fmt.Errorf("there is no API database at %s: run the command on the machine of the compute API, "+
			"or name its configuration with --config", at)
	}
	if err != nil {
		return nil, err
	}
	err = sqldb.RunWhereOpen(ctx, at.Name, func() (err error) {
		store, err := apidb.Open(ctx, at.Name, apidb.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		hosts, err = operator.HostNames(ctx, store)
		return err
	}, func(socket string) error {
		var out, problems bytes.Buffer
		var views []operator.Host
		list := []string{"cells", "manage", "list-hosts", "--output=json"}
		code, err := sqldb.RunAt(ctx, socket, list, &out, &problems)
		if err == nil && code != 0 {
			err = fmt.Errorf("the compute API does not list them: %s", strings.TrimSpace(problems.String()))
		}
		if err == nil {
			err = json.Unmarshal(out.Bytes(), &views)
		}
		for _, v := range views {
			hosts = append(hosts, v.Host)
		}
		return err
	})
	return hosts, err
}

// OnDeployment calls do with the deployment that a configuration and its API database are of. Cells
// that do not answer are not logged: the command says so.
func OnDeployment(cfg *config.Config, store apidb.Store, do func(*operator.Deployment) error) error {
	gatherer := gather.New(gather.Options{
		Client:  cellClients(cfg, zerolog.Nop()),
		Timeout: cfg.ComputeAPI.CellTimeout, Logger: zerolog.Nop(),
	})
	defer gatherer.CloseIdle()
	return do(&operator.Deployment{
		Store: store, Gatherer: gatherer, Placement: cfg.PlacementClient, Enrolment: cfg.Enrolment,
		DiscoverPatterns: cfg.ComputeAPI.DiscoverHostsPattern,
	})
}

// CheckPolicies validates the policy files of Placement and the compute API. Rules without effect
// are logged.
func CheckPolicies(cfg *config.Config, log zerolog.Logger) error {
	var errs []error
	check := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	if file := cfg.Policy.File; file != "" {
		_, err := api.OpenPolicy(api.Defaults(cfg.Policy.Defaults), file, log)
		check("policy.file", err)
	}
	if file := cfg.ComputeAPI.PolicyFile; file != "" {
		_, err := compute.OpenPolicy(file, log)
		check("compute_api.policy_file", err)
	}
	return config.Invalid(errs...)
}
