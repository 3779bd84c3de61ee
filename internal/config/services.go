// SPDX-License-Identifier: Apache-2.0

package config

import "slices"

// Service is a process that reads the configuration.
type Service string

// The services, by what people call them.
const (
	AgentService      Service = "the agent"
	PlacementService  Service = "Placement"
	ComputeAPIService Service = "the compute API"
	CellService       Service = "cells"
)

var (
	// allServices read a section that is about every process.
	allServices = []Service{AgentService, PlacementService, ComputeAPIService, CellService}
	// driversReaders read [drivers.NAME].
	driversReaders = []Service{AgentService}
)

// SectionsOf are the names of the sections that any of some services reads, sorted.
func SectionsOf(services ...Service) []string {
	var out []string
	for _, s := range append(new(Config).sections(), section{name: driversSection, readers: driversReaders}) {
		if slices.ContainsFunc(s.readers, func(s Service) bool { return slices.Contains(services, s) }) {
			out = append(out, s.name)
		}
	}
	slices.Sort(out)
	return out
}

// readBy lists the services that read a section.
func readBy(readers []Service) string {
	if len(readers) == len(allServices) {
		return "all services"
	}
	words := make([]string, len(readers))
	for i, s := range readers {
		words[i] = string(s)
	}
	return series(words, "and")
}
