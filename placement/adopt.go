// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/placement/store"
)

// CheckAdoption looks whether the database of a configuration, which OpenStack Placement made, can
// be served, and changes nothing. Of the configuration it needs StateDir or Database.
func CheckAdoption(ctx context.Context, cfg Config) (store.Adoption, error) {
	name, err := cfg.DatabaseName()
	if err != nil {
		return store.Adoption{}, err
	}
	found, err := store.CheckAdoption(ctx, name)
	if err != nil {
		return found, fmt.Errorf("check the Placement database: %w", err)
	}
	return found, nil
}

// Adopt makes the tables of this program in a database that OpenStack Placement made; see
// [store.Adopt].
func Adopt(ctx context.Context, cfg Config, o store.AdoptOptions) (store.Adopted, error) {
	name, err := cfg.DatabaseName()
	if err != nil {
		return store.Adopted{}, err
	}
	done, err := store.Adopt(ctx, name, o)
	if err != nil {
		return done, fmt.Errorf("adopt the Placement database: %w", err)
	}
	return done, nil
}

// HandBack removes what Adopt made; see [store.HandBack].
func HandBack(ctx context.Context, cfg Config, o store.AdoptOptions) (store.Adopted, error) {
	name, err := cfg.DatabaseName()
	if err != nil {
		return store.Adopted{}, err
	}
	done, err := store.HandBack(ctx, name, o)
	if err != nil {
		return done, fmt.Errorf("hand the Placement database back: %w", err)
	}
	return done, nil
}
