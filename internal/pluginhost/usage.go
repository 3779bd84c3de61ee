// SPDX-License-Identifier: Apache-2.0

package pluginhost

import "github.com/compute-agent/compute-agent/internal/lib/processes"

// Usage is the resource usage of a plugin: its process, those of its group, and their descendants.
type Usage struct {
	Processes int `json:"processes"`
	Threads   int `json:"threads"`
	// MemoryBytes is resident memory. Pages that several of the processes share count for each.
	MemoryBytes int64 `json:"memory_bytes"`
	// OpenFiles counts descriptors, without those of processes that the agent must not inspect.
	OpenFiles int `json:"open_files"`
}

// Measure reads what plugins use, by the id of the plugin's process. Processes that have ended are
// left out.
//
// Errors: /proc cannot be listed. Cost: reads a small file for each process of the machine that can
// be seen.
func Measure(pids ...int) (map[int]Usage, error) {
	all, err := processes.All()
	if err != nil {
		return nil, err
	}
	out := map[int]Usage{}
	for _, pid := range pids {
		var u Usage
		for _, p := range processes.Family(all, pid) {
			u.Processes++
			u.Threads += p.Threads
			u.MemoryBytes += p.Memory
			u.OpenFiles += processes.OpenFiles(p.PID)
		}
		if u.Processes > 0 {
			out[pid] = u
		}
	}
	return out, nil
}
