// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
)

// Service is a process that reads the configuration.
type Service string

// The services, by what people call them.
const (
	AgentService      Service = "the agent"
	PlacementService  Service = "Placement"
	ComputeAPIService Service = "the compute API"
	CellService       Service = "cells"
)

// allServices read a section that is about every process.
var allServices = []Service{AgentService, PlacementService, ComputeAPIService, CellService}

// readers are the services that read each section.
var readers = map[string][]Service{
	"agent":             allServices,
	"placement_client":  {AgentService, ComputeAPIService},
	"tracker":           {AgentService},
	"reshape":           {AgentService},
	"plugins":           {AgentService},
	driversSection:      {AgentService},
	"log":               allServices,
	"metrics":           {AgentService},
	"tracing":           allServices,
	"placement":         {PlacementService},
	"placement_tls":     {PlacementService},
	"deny_list":         {PlacementService, ComputeAPIService, CellService},
	"placement_metrics": {PlacementService},
	"server":            {PlacementService, ComputeAPIService, CellService},
	"keystone":          {PlacementService, ComputeAPIService},
	"cors":              {PlacementService},
	"audit":             {PlacementService, ComputeAPIService, CellService},
	"policy":            {PlacementService},
	"cell_client":       {AgentService},
	"cell":              {CellService},
	"compute_api":       {ComputeAPIService},
	"quota":             {ComputeAPIService},
	"scheduler":         {ComputeAPIService},
	"enrolment":         {ComputeAPIService},
	"enrolment_client":  {AgentService},
}

// SectionsOf are the names of the sections that any of some services reads, sorted.
func SectionsOf(services ...Service) []string {
	var out []string
	for _, name := range sortedKeys(readers) {
		if slices.ContainsFunc(readers[name], func(s Service) bool { return slices.Contains(services, s) }) {
			out = append(out, name)
		}
	}
	return out
}

// readBy says which services read a section.
func readBy(section string) string {
	if len(readers[section]) == len(allServices) {
		return "all services"
	}
	words := make([]string, len(readers[section]))
	for i, s := range readers[section] {
		words[i] = string(s)
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
