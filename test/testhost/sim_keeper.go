// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
)

const (
	// keeperEnv tells a program that it is the keeper, with its settings; simEnv tells mdevctl
	// where the simulation is.
	keeperEnv = "COMPUTE_AGENT_SIM_KEEPER"
	simEnv    = "COMPUTE_AGENT_SIM"
	// vfioEnv tells mdevctl that what it makes needs a node in /dev/vfio.
	vfioEnv = "COMPUTE_AGENT_SIM_VFIO"
	// stopTimeout is how long the daemon may take to end in good order.
	stopTimeout = 10 * time.Second
)

type keeperSettings struct {
	Dir         string
	Emulators   bool
	Passthrough bool
	// Path is where the daemon looks for emulators before this machine's own.
	Path string
	// Groups are nil until the keeper has made them, which it does with emulators.
	Groups *ownGroups `json:",omitempty"`
}

// order is a line to the keeper, answer its line back.
type order struct {
	Do     string
	Uevent *Uevent `json:",omitempty"`
}

type answer struct {
	PID   int
	Error string `json:",omitempty"`
	// NotInstalled: there is no libvirtd on this machine.
	NotInstalled bool `json:",omitempty"`
}

func (a answer) err(do string) error {
	switch {
	case a.NotInstalled:
		return libvirtd.ErrNotInstalled
	case a.Error != "":
		return fmt.Errorf("%w: %s: %s", ErrRemotely, do, a.Error)
	}
	return nil
}

// SimMain must be called before anything else by a program that starts simulations. In the keeper
// and in mdevctl it does their work and ends the process; elsewhere it returns at once.
func SimMain() {
	if dir := os.Getenv(simEnv); dir != "" && filepath.Base(os.Args[0]) == "mdevctl" {
		os.Exit(mdevctl(dir, "/", os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	text := os.Getenv(keeperEnv)
	if text == "" {
		return
	}
	if err := keep(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keeper has the daemon.
type keeper struct {
	settings keeperSettings
	daemon   *libvirtd.Daemon
}

func keep(text string) error {
	k := &keeper{}
	if err := json.Unmarshal([]byte(text), &k.settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	if k.settings.Emulators && k.settings.Groups == nil {
		return begin(k.settings, again)
	}
	if k.settings.Groups != nil {
		k.settings.Groups.hold()
	}
	if err := k.mount(); err != nil {
		return errors.Join(err, k.removeGroups())
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			err = k.do(o)
		}
		a := answer{NotInstalled: errors.Is(err, libvirtd.ErrNotInstalled)}
		if err != nil {
			a.Error = err.Error()
		}
		if k.daemon != nil {
			a.PID = k.daemon.PID()
		}
		if err := out.Encode(a); err != nil {
			break // no reader: the end, as below
		}
	}
	return errors.Join(k.stop(), k.endGuests(), k.removeGroups())
}

// again executes this program as the keeper with other settings. It returns only an error.
func again(settings keeperSettings) error {
	text, err := json.Marshal(settings)
	if err == nil {
		err = os.Setenv(keeperEnv, string(text))
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	return err
}

func (k *keeper) removeGroups() error {
	if k.settings.Groups == nil {
		return nil
	}
	return k.settings.Groups.remove(time.Now().Add(dying))
}

// mount mounts the made-up host over this machine's. The namespace ends with its last process.
func (k *keeper) mount() error {
	host := filepath.Join(k.settings.Dir, "host")
	// The mounts below must not propagate to other namespaces.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts private: %w", err)
	}
	if k.settings.Groups != nil {
		if err := k.settings.Groups.mount(host + cgroupRoot); err != nil {
			return err
		}
	}
	if err := syscall.Mount(host+"/sys", "/sys", "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	for _, file := range []string{"/proc/cpuinfo", "/proc/meminfo"} {
		if err := syscall.Mount(host+file, file, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", file, err)
		}
	}
	staging := filepath.Join(k.settings.Dir, "staging")
	if err := mountUdev(staging); err != nil {
		return err
	}
	if !k.settings.Passthrough {
		return nil
	}
	if err := mountDevices(staging); err != nil {
		return err
	}
	return pretend()
}

func (k *keeper) do(o order) error {
	switch o.Do {
	case "launch":
		return k.launch()
	case "stop":
		return k.stop()
	case "kill":
		if k.daemon == nil {
			return errors.New("no daemon runs")
		}
		if err := syscall.Kill(k.daemon.PID(), syscall.SIGKILL); err != nil {
			return err
		}
		<-k.daemon.Done()
		return k.stop() // gives back what it held; it is dead already
	case "uevent":
		if k.settings.Passthrough { // what is new may have an IOMMU group of its own
			if err := vfioNodes(); err != nil {
				return err
			}
		}
		return o.Uevent.send()
	}
	return fmt.Errorf("unknown order %q", o.Do)
}

func (k *keeper) launch() error {
	if k.daemon != nil {
		return errors.New("a daemon runs already")
	}
	d := k.settings.Dir
	path := filepath.Join(d, "bin") + ":/usr/sbin:/sbin" // where Debian has no emulators
	if k.settings.Emulators {
		path += ":" + k.settings.Path + ":" + os.Getenv("PATH") + ":/usr/bin:/bin"
	}
	// libudev insists on a real sysfs otherwise
	emulators, environment := "", []string{"SYSTEMD_DEVICE_VERIFY_SYSFS=0", simEnv + "=" + d}
	if k.settings.Passthrough { // the controllers without those that know this machine's CPUs, cells and devices
		emulators = `cgroup_controllers = ["cpu", "memory", "blkio", "cpuacct"]` + "\n"
		environment = append(environment, vfioEnv+"=1")
	}
	// On the system's bus libvirt would have systemd make its guests' control groups, elsewhere and
	// for all to see.
	environment = append(environment, "DBUS_SYSTEM_BUS_ADDRESS=unix:path="+filepath.Join(d, "run", "no-bus"))
	daemon, err := libvirtd.StartPrivate(context.Background(), libvirtd.Options{
		Dir: filepath.Join(d, "state"), RuntimeDir: filepath.Join(d, "run"), SearchPath: path, Emulators: emulators,
		Logger: zerolog.Nop(), Environment: environment,
	})
	if err != nil {
		return err
	}
	k.daemon = daemon
	return nil
}

func (k *keeper) stop() error {
	if k.daemon == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	err := k.daemon.Stop(ctx)
	k.daemon = nil
	return err
}

// endGuests kills what the daemon left running: those guests whose pid files it wrote for this
// simulation.
func (k *keeper) endGuests() error {
	files, err := filepath.Glob(filepath.Join(k.settings.Dir, "run", "run", "qemu", "*.pid"))
	if err != nil {
		return err
	}
	var errs []error
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended by itself
		}
		var pid int
		if _, err := fmt.Sscan(string(text), &pid); err != nil || pid <= 1 {
			continue
		}
		if !ours(pid) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, awaitEnd(pid))
	}
	return errors.Join(errs...)
}

// ours reports whether a process is in this network namespace, which no other process uses.
func ours(pid int) bool {
	its, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false
	}
	mine, err := os.Stat("/proc/self/ns/net")
	return err == nil && os.SameFile(its, mine)
}
