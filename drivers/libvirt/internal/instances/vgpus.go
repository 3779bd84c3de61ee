// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
)

// vGPUs on virtual functions (see package discovery) are made and removed by the number of their
// type, which is written into a file of the function. libvirt has no part in it.
//
// What is made for an instance is recorded twice before it is made: in the mark of its domain, and
// in its directory, for the case that the domain is undefined with another tool.
const (
	vgpuNote     = "vgpus.json"
	noVGPU       = "0"
	releaseLimit = time.Minute
	releasePause = time.Second
)

// vgpuRecord is a vGPU in the note of an instance.
type vgpuRecord struct {
	Function string `json:"function"`
	Type     string `json:"type"`
}

// vgpuFile is the file with the type of a function's vGPU, below the root.
func vgpuFile(function machine.Address) string {
	return machine.VGPUFile(function, machine.CurrentVGPUType)
}

// makeVGPUs makes the missing ones: new ones, and after a restart of the host all.
func (j *job) makeVGPUs(ctx context.Context, vgpus []domain.VGPU) (err error) {
	if len(vgpus) == 0 {
		return nil
	}
	d, err := j.directory(ctx)
	if err != nil {
		return err
	}
	if err := d.recordVGPUs(vgpus); err != nil {
		return err
	}
	root, err := j.kernel()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, v := range vgpus {
		name, number := vgpuFile(v.Function), machine.VGPUTypeNumber(v.Type)
		has, err := readKernel(root, name)
		switch {
		case err != nil:
			return fmt.Errorf("instance %s: reading what its vGPU's function has: %w", j.uuid, err)
		case has == number:
			continue
		case has != noVGPU:
			return fmt.Errorf("instance %s: /%s has %.40q, another vGPU than its %s", j.uuid, name, has, v.Type)
		}
		j.begun = true
		if err := j.manager.write(root, name, number); err != nil {
			return fmt.Errorf("instance %s: making its vGPU of type %s: %w%s", j.uuid, v.Type, err, vgpuHint(err))
		}
		if has, err = readKernel(root, name); err != nil || has != number {
			return fmt.Errorf("instance %s: /%s has %.40q after %q was written: %w",
				j.uuid, name, has, number, errors.Join(errNoVGPU, err))
		}
	}
	return nil
}

var errNoVGPU = errors.New("the vGPU was not made; the kernel's log has the reason of its driver")

// vgpuHint is what an operator can do about an error of the kernel, or "".
func vgpuHint(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return `; let the agent's user write this file, see "Virtual GPUs" in docs/libvirt.md`
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOSPC):
		return "; the GPU does not make this type beside what it has, or not on this function: see nvidia-smi " +
			"vgpu -q and the kernel's log"
	}
	return ""
}

// kernel opens the directory that has sys in it.
func (j *job) kernel() (*os.Root, error) {
	root, err := os.OpenRoot(filepath.Join("/", j.setup.Chroot))
	if err != nil {
		return nil, fmt.Errorf("instance %s: opening the kernel's files: %w", j.uuid, err)
	}
	return root, nil
}

// removeVGPUs removes those that were made for the instance. Others were there before and stay, and
// so does what a function has now instead.
func (j *job) removeVGPUs(ctx context.Context, vgpus []domain.VGPU) (err error) {
	var root *os.Root
	for _, v := range vgpus {
		if !v.Made {
			continue
		}
		if root == nil {
			if root, err = j.kernel(); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, root.Close()) }()
		}
		if err := j.removeVGPU(ctx, root, v); err != nil {
			return err
		}
	}
	return nil
}

// removeRecordedVGPUs removes those of an instance whose domain was undefined with another tool.
func (j *job) removeRecordedVGPUs(ctx context.Context, d directory) error {
	vgpus, err := d.recordedVGPUs()
	if err != nil {
		return err
	}
	return j.removeVGPUs(ctx, vgpus)
}

// removeVGPU removes one. Its driver refuses that for as long as the guest's process holds the
// function, which may outlive the domain for a moment.
func (j *job) removeVGPU(ctx context.Context, root *os.Root, v domain.VGPU) error {
	name := vgpuFile(v.Function)
	for waited := time.Duration(0); ; waited += releasePause {
		has, err := readKernel(root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the function has gone, and its vGPU with it
			return nil
		case err != nil:
			return fmt.Errorf("instance %s: reading what its vGPU's function has: %w", j.uuid, err)
		case has != machine.VGPUTypeNumber(v.Type):
			return nil
		}
		j.begun = true
		err = j.manager.write(root, name, noVGPU)
		if err == nil {
			if has, err = readKernel(root, name); err == nil && has != noVGPU {
				err = fmt.Errorf("/%s has %.40q after 0 was written", name, has)
			}
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, fs.ErrPermission), waited >= releaseLimit:
			return fmt.Errorf("instance %s: removing its vGPU of type %s: %w%s", j.uuid, v.Type, err, vgpuHint(err))
		case !wait.For(ctx, releasePause):
			return ctx.Err()
		}
	}
}

// recordVGPUs notes which vGPUs are made for the instance, if any are.
func (d directory) recordVGPUs(vgpus []domain.VGPU) error {
	var made []vgpuRecord
	for _, v := range vgpus {
		if v.Made {
			made = append(made, vgpuRecord{v.Function.String(), v.Type})
		}
	}
	if len(made) == 0 {
		return nil
	}
	text, err := json.Marshal(made)
	if err == nil {
		err = files.Replace(d.file(vgpuNote), text)
	}
	if err != nil {
		return fmt.Errorf("noting the vGPUs of an instance: %w", err)
	}
	return nil
}

// recordedVGPUs are the vGPUs of the note; none if there is no note.
func (d directory) recordedVGPUs() ([]domain.VGPU, error) {
	text, err := os.ReadFile(d.file(vgpuNote))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var made []vgpuRecord
	if err == nil {
		err = json.Unmarshal(text, &made)
	}
	var out []domain.VGPU
	for _, m := range made {
		function, bad := machine.ParseAddress(m.Function)
		err = errors.Join(err, bad)
		out = append(out, domain.VGPU{Function: function, Type: m.Type, Made: true})
	}
	if err != nil {
		return nil, fmt.Errorf("reading which vGPUs an instance has: %s: %w", d.file(vgpuNote), err)
	}
	return out, nil
}
