// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// Limits of an instance, in bytes unless noted. Nova stores 255 characters of names.
const (
	// MaxUserData bounds what an instance gets for cloud-init, decoded.
	MaxUserData = 64 << 10
	// MaxPublicKey bounds the public key of a key pair. The longest that are in use have 3 KiB.
	MaxPublicKey = 16 << 10
	// MaxName bounds the names of instances and flavors.
	MaxName = 255 * utf8.UTFMax

	maxOwner         = 255
	maxShown         = 80 // of a text, in errors
	maxImage         = 4096
	maxProperties    = 1000    // entries of one map
	maxPropertyBytes = 1 << 20 // keys and values of one map
)

// FromPower converts a power state to its message. A number outside of int32 becomes -1, which is
// not a power state either.
func FromPower(state int) driverv1.PowerState {
	if state < math.MinInt32 || state > math.MaxInt32 {
		return -1
	}
	return driverv1.PowerState(state)
}

// CheckPower returns an error for a number that is not a power state. It must not be taken for
// NOSTATE, which says that there is no guest.
func CheckPower(state driverv1.PowerState) error {
	if _, known := driverv1.PowerState_name[int32(state)]; !known {
		return fmt.Errorf(
			"power state %d: must be one of NOSTATE (0), RUNNING (1), PAUSED (3), SHUTDOWN (4), CRASHED (6), "+
				"SUSPENDED (7)", state)
	}
	return nil
}

// CheckTargetPower returns an error for a state that SetPower does not accept.
func CheckTargetPower(state driverv1.PowerState) error {
	if state != driverv1.PowerState_POWER_STATE_RUNNING && state != driverv1.PowerState_POWER_STATE_SHUTDOWN {
		return fmt.Errorf("power state %d: an instance can be brought to RUNNING (1) or SHUTDOWN (4)", state)
	}
	return nil
}

// CheckNode returns an error for a name that is not valid for a compute node.
func CheckNode(name string) error {
	if !utf8.ValidString(name) {
		return fmt.Errorf("node %q is not valid UTF-8", shown(name))
	}
	if err := providertree.ValidateProviderName(name); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

// CheckSpec checks the spec of an instance: in the agent before the call, in the plugin before the
// driver gets it. It returns the spec's uuid and its allocations in canonical form. Cost: O(size of
// the spec).
func CheckSpec(
	m *driverv1.InstanceSpec, tree *providertree.Tree,
) (uuid string, allocations providertree.ProviderResources, err error) {
	if m == nil {
		return "", nil, errors.New("the instance is missing")
	}
	if uuid, err = providertree.CanonicalUUID(m.GetUuid()); err != nil {
		return "", nil, fmt.Errorf("instance: %w", err)
	}
	if allocations, err = checkSpec(m, tree); err != nil {
		return "", nil, fmt.Errorf("instance %s: %w", uuid, err)
	}
	return uuid, allocations, nil
}

func checkSpec(m *driverv1.InstanceSpec, tree *providertree.Tree) (providertree.ProviderResources, error) {
	flavor := m.GetFlavor()
	for _, text := range []struct {
		of, value string
		maxBytes  int
	}{
		{"name", m.GetName(), MaxName}, {"project id", m.GetProjectId(), maxOwner},
		{"user id", m.GetUserId(), maxOwner},
		{"image", m.GetImage(), maxImage}, {"name of the flavor", flavor.GetName(), MaxName},
		{"name of the key pair", m.GetKeyName(), MaxName}, {"public key", m.GetPublicKey(), MaxPublicKey},
	} {
		switch {
		case len(text.value) > text.maxBytes:
			return nil, fmt.Errorf("%s has %d bytes, at most %d are allowed", text.of, len(text.value), text.maxBytes)
		case !utf8.ValidString(text.value):
			return nil, fmt.Errorf("%s %q is not valid UTF-8", text.of, shown(text.value))
		}
	}
	for _, size := range []struct {
		of string
		n  int64
	}{
		{"vcpus", flavor.GetVcpus()}, {"memory_mb", flavor.GetMemoryMb()}, {"root_gb", flavor.GetRootGb()},
		{"ephemeral_gb", flavor.GetEphemeralGb()}, {"swap_mb", flavor.GetSwapMb()},
	} {
		if size.n < 0 || size.n > providertree.MaxUnit {
			return nil, fmt.Errorf("flavor: %s is %d: must be between 0 and %d",
				size.of, size.n, int64(providertree.MaxUnit))
		}
	}
	for _, properties := range []struct {
		of string
		m  map[string]string
	}{{"image properties", m.GetImageProperties()},
		{"metadata", m.GetMetadata()}, {"extra specs of the flavor", flavor.GetExtraSpecs()}} {
		if err := checkProperties(properties.m); err != nil {
			return nil, fmt.Errorf("%s: %w", properties.of, err)
		}
	}
	if n := len(m.GetUserData()); n > MaxUserData {
		return nil, fmt.Errorf("user data has %d bytes, at most %d are allowed", n, MaxUserData)
	}
	return checkGranted(m.GetAllocations(), tree)
}

func checkProperties(properties map[string]string) error {
	if n := len(properties); n > maxProperties {
		return fmt.Errorf("%d entries, at most %d are allowed", n, maxProperties)
	}
	size := 0
	for key, value := range properties {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return fmt.Errorf("%q = %q is not valid UTF-8", shown(key), shown(value))
		}
		size += len(key) + len(value)
	}
	if size > maxPropertyBytes {
		return fmt.Errorf("%d bytes, at most %d are allowed", size, maxPropertyBytes)
	}
	return nil
}

// checkGranted checks the allocations of one instance against the tree that is sent with them.
func checkGranted(
	granted map[string]*driverv1.Resources, tree *providertree.Tree,
) (providertree.ProviderResources, error) {
	allocations, err := ToResources(granted)
	if err != nil {
		return nil, fmt.Errorf("allocations: %w", err)
	}
	for _, provider := range slices.Sorted(maps.Keys(allocations)) {
		switch {
		case !tree.Exists(provider):
			return nil, fmt.Errorf("allocations: resource provider %s is not in the tree", provider)
		case len(allocations[provider]) == 0:
			return nil, fmt.Errorf("allocations: resource provider %s is listed without any resources", provider)
		}
	}
	return allocations, nil
}

// Limits of moves, in bytes.
const (
	MaxOffer    = 3 << 10
	MaxChunk    = 1 << 20
	MaxFileName = 255
)

// CheckOffer returns an error for what Depart cannot return.
func CheckOffer(offer string) error {
	switch {
	case len(offer) > MaxOffer:
		return fmt.Errorf("the offer has %d bytes, at most %d are allowed", len(offer), MaxOffer)
	case !utf8.ValidString(offer):
		return errors.New("the offer is not valid UTF-8")
	}
	return nil
}

// CheckFile returns an error for a part of a file that cannot be asked for.
func CheckFile(name string, offset int64) error {
	switch {
	case name == "" || len(name) > MaxFileName:
		return fmt.Errorf("the name of a file has %d bytes: it must have 1 to %d", len(name), MaxFileName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name of a file %q is not valid UTF-8", shown(name))
	case offset < 0:
		return fmt.Errorf("the offset %d is negative", offset)
	}
	return nil
}

// Chunks checks the order of the parts of a file.
type Chunks struct{ next int64 }

// ChunksFrom is for a file that is read from an offset.
func ChunksFrom(offset int64) *Chunks { return &Chunks{next: offset} }

// Check returns an error for a part that cannot follow.
func (c *Chunks) Check(m *driverv1.FileChunk) error {
	size := int64(len(m.GetData()))
	switch {
	case size == 0 || size > MaxChunk:
		return fmt.Errorf("a part of a file has %d bytes: it must have 1 to %d", size, MaxChunk)
	case m.GetOffset() < c.next:
		return fmt.Errorf("a part of a file is at %d, and what is before %d was sent already", m.GetOffset(), c.next)
	case m.GetOffset() > math.MaxInt64-size:
		return fmt.Errorf("a part of a file at %d is too far", m.GetOffset())
	}
	c.next = m.GetOffset() + size
	return nil
}
