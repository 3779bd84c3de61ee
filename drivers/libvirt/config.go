// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/instances"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

//go:embed schema.json
var schema []byte

// The default directories of the guests' disks: Nova's on a machine that Nova manages, so that it
// can be taken over unchanged; libvirt's default storage pool elsewhere.
const (
	novaInstances = "/var/lib/nova/instances"
	libvirtImages = "/var/lib/libvirt/images"
)

// config is the table [drivers.libvirt.config]; schema.json describes the keys.
type config struct {
	URI           string `json:"uri"`
	Host          string `json:"host"`
	InstancesPath string `json:"instances_path"`

	ReservedCPUs     int64 `json:"reserved_host_cpus"`
	ReservedMemoryMB int64 `json:"reserved_host_memory_mb"`
	ReservedDiskMB   int64 `json:"reserved_host_disk_mb"`

	CPURatio         float64 `json:"cpu_allocation_ratio"`
	RAMRatio         float64 `json:"ram_allocation_ratio"`
	DiskRatio        float64 `json:"disk_allocation_ratio"`
	InitialCPURatio  float64 `json:"initial_cpu_allocation_ratio"`
	InitialRAMRatio  float64 `json:"initial_ram_allocation_ratio"`
	InitialDiskRatio float64 `json:"initial_disk_allocation_ratio"`

	// NUMA is flat or nested; Unplaced is refuse or guess.
	NUMA       string `json:"numa"`
	Unplaced   string `json:"unplaced_consumers"`
	SharedDisk bool   `json:"shared_disk"`
	// IgnoredCells are the NUMA cells that are left out of the tree.
	IgnoredCells []int `json:"numa_ignore_cells"`
	TiersInRoot  bool  `json:"memory_tiers_in_root"`
	selection.CPUConfig
	selection.PowerConfig
	selection.PagesConfig
	selection.MdevConfig
	selection.PCIConfig
	selection.PMEMConfig
	selection.MemoryEncryptionConfig
	inventory.TraitConfig

	// Instances is set if the driver creates and deletes guests.
	Instances *instances.Config `json:"instances"`

	Chroot         string `json:"chroot"`
	ConnectTimeout string `json:"connect_timeout"`
	CallTimeout    string `json:"call_timeout"`

	// number identifies the configuration.
	number int
	// former are names that nodes had, with those that they have now.
	former map[string]string

	connectTimeout, callTimeout time.Duration

	sets  selection.CPUSets
	power selection.Power
	pages selection.Reserved
	types selection.MdevTypes
	specs selection.PCISpecs
	pmem  selection.PMEMLabels
	sev   selection.EncryptionLimit

	instances instances.Settings
}

// The words for NUMA and Unplaced.
const (
	flat   = "flat"
	nested = "nested"
	refuse = "refuse"
	guess  = "guess"
)

func parseConfig(raw json.RawMessage, host plugins.HostInfo) (config, error) {
	cfg := config{
		URI:              "qemu:///system",
		Host:             host.Name,
		ReservedMemoryMB: 512,
		InitialCPURatio:  4,
		InitialRAMRatio:  1,
		InitialDiskRatio: 1,
		NUMA:             flat,
		Unplaced:         refuse,
		PowerConfig:      selection.DefaultPower(),
		TraitConfig:      inventory.TraitConfig{Service: inventory.KeepTrait, More: inventory.KeepTrait},
		Chroot:           "/",
		ConnectTimeout:   "10s",
		CallTimeout:      "30s",
	}
	if err := plugins.DecodeConfig(raw, &cfg); err != nil {
		return config{}, err
	}
	if cfg.Host == "" {
		cfg.Host = host.Name
	}
	cfg.former = host.FormerNodes
	if err := cfg.check(); err != nil {
		return config{}, err
	}
	return cfg, nil
}

// check finds what the types do not, all of it, and fills in what follows from the keys.
func (c *config) check() error {
	var all []error
	bad := func(key, format string, args ...any) {
		all = append(all, &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)})
	}
	if u, err := url.Parse(c.URI); err != nil || u.Scheme == "" {
		bad("uri", "%q is not a libvirt connection URI such as qemu:///system", c.URI)
	}
	if c.Host != "" {
		if err := providertree.ValidateProviderName(c.Host); err != nil {
			bad("host", "%v", err)
		}
	}
	if c.NUMA != flat && c.NUMA != nested {
		bad("numa", "%q must be \"flat\" or \"nested\"", c.NUMA)
	}
	if c.Unplaced != refuse && c.Unplaced != guess {
		bad("unplaced_consumers", "%q must be \"refuse\" or \"guess\"", c.Unplaced)
	}
	if c.InstancesPath != "" && !filepath.IsAbs(c.InstancesPath) {
		bad("instances_path", "%q is not an absolute path", c.InstancesPath)
	}
	if !filepath.IsAbs(c.Chroot) {
		bad("chroot", "%q is not an absolute path", c.Chroot)
	}
	amounts := map[string]int64{
		"reserved_host_cpus": c.ReservedCPUs, "reserved_host_memory_mb": c.ReservedMemoryMB,
		"reserved_host_disk_mb": c.ReservedDiskMB,
	}
	for _, key := range slices.Sorted(maps.Keys(amounts)) {
		v := amounts[key]
		if v < 0 || v > providertree.MaxUnit*1024 {
			bad(key, "%d must be 0 or more, and an amount that exists", v)
		}
	}
	ratios := map[string]float64{"cpu_allocation_ratio": c.CPURatio, "ram_allocation_ratio": c.RAMRatio,
		"disk_allocation_ratio": c.DiskRatio}
	for _, key := range slices.Sorted(maps.Keys(ratios)) {
		v := ratios[key]
		if v < 0 || v > math.MaxFloat32 {
			bad(key, "%v must be above 0, or 0 to keep what Placement has", v)
		}
	}
	initial := map[string]float64{
		"initial_cpu_allocation_ratio": c.InitialCPURatio,
		"initial_ram_allocation_ratio": c.InitialRAMRatio, "initial_disk_allocation_ratio": c.InitialDiskRatio,
	}
	for _, key := range slices.Sorted(maps.Keys(initial)) {
		v := initial[key]
		if v <= 0 || v > math.MaxFloat32 {
			bad(key, "%v must be above 0", v)
		}
	}
	for _, d := range []struct {
		key, text string
		into      *time.Duration
	}{{"connect_timeout", c.ConnectTimeout, &c.connectTimeout}, {"call_timeout", c.CallTimeout, &c.callTimeout}} {
		v, err := time.ParseDuration(d.text)
		if err != nil || v < 100*time.Millisecond || v > 10*time.Minute {
			bad(d.key, "%q must be a time between \"100ms\" and \"10m\", such as \"10s\"", d.text)
		}
		*d.into = v
	}
	return plugins.JoinConfig(append(all, c.parse())...)
}

// guestsDirectory is the directory of the guests' disks that is configured, or that the packages
// made for guests that the driver manages; "": the usual one.
func (c *config) guestsDirectory() string {
	if c.InstancesPath == "" && c.Instances != nil {
		if info, err := os.Stat(instances.DefaultGuests); err == nil && info.IsDir() {
			return instances.DefaultGuests
		}
	}
	return c.InstancesPath
}

// parse reads the keys that have a grammar of their own.
func (c *config) parse() error {
	var all [9]error
	c.sets, all[0] = selection.ParseCPUSets(c.CPUConfig)
	c.pages, all[1] = selection.ParsePages(c.PagesConfig)
	c.types, all[2] = selection.ParseMdevs(c.MdevConfig)
	c.specs, all[3] = selection.ParsePCI(c.PCIConfig)
	c.pmem, all[4] = selection.ParsePMEM(c.PMEMConfig)
	c.sev, all[5] = selection.ParseEncryption(c.MemoryEncryptionConfig)
	if c.Instances != nil {
		c.instances, all[6] = instances.Parse(*c.Instances)
	}
	all[7] = c.Check()
	c.power, all[8] = selection.ParsePower(c.PowerConfig, c.sets)
	return plugins.JoinConfig(all[:]...)
}
