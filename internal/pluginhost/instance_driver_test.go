// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// instanceDriver is the faulty driver with instances. The image that an instance is spawned from,
// or the name of the node, selects what it does.
type instanceDriver struct {
	chaos
	events chan [2]string
}

func newInstanceDriver() *instanceDriver { return &instanceDriver{events: make(chan [2]string, 1000)} }

const (
	goFile     = "go"     // slow ones end when the test makes it in the scratch directory
	brokenNode = "broken" // events about it break the stream
)

func (id *instanceDriver) Instances(_ context.Context, node string) ([]plugins.Instance, error) {
	switch node {
	case "bad":
		return []plugins.Instance{{UUID: rootUUID}, {UUID: rootUUID}}, nil
	case "not-ready":
		return []plugins.Instance{{UUID: rootUUID}}, &plugins.NotReady{Reason: "it sleeps"}
	}
	return []plugins.Instance{{UUID: "AAAAAAAA22223333444455555555ABCD", Name: "web", Power: plugins.PowerPaused,
		HypervisorName: "instance-00000001"}}, nil
}

// notify passes an event on to the watcher; without one it is lost.
func (id *instanceDriver) notify(node, uuid string) {
	select {
	case id.events <- [2]string{node, uuid}:
	default:
	}
}

func (id *instanceDriver) Spawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, _ *providertree.Tree,
) (plugins.Instance, error) {
	id.notify(node, spec.UUID)
	made := plugins.Instance{UUID: spec.UUID, Name: spec.Name, Power: plugins.PowerRunning,
		HypervisorName: fmt.Sprint(os.Getpid())}
	switch spec.Image {
	case "echo":
		text, err := json.Marshal(spec)
		if err != nil {
			return made, err
		}
		// words would be made fit to be shown
		return made, &plugins.InstanceFault{Reason: base64.StdEncoding.EncodeToString(text)}
	case "fault":
		return made, fmt.Errorf(
			"making a disk: %w", &plugins.InstanceFault{UUID: "another instance", Reason: "the disk is full"})
	case "not-ready":
		return made, &plugins.NotReady{Reason: "it sleeps"}
	case "unsupported":
		return made, fmt.Errorf("this hypervisor: %w", plugins.ErrUnsupported)
	case "not-found":
		return made, fmt.Errorf("looking at what was made: %w", plugins.ErrInstanceNotFound)
	case "error":
		return made, errors.New("something went wrong")
	case "own-deadline":
		return made, fmt.Errorf("the hypervisor: %w", context.DeadlineExceeded)
	case "panic":
		panic("a defect of the driver")
	case "crash":
		os.Exit(7)
	case "other":
		made.UUID = rootUUID
	case "hang":
		<-ctx.Done()
		return made, ctx.Err()
	case "slow":
		return made, id.slow(spec.UUID)
	}
	return made, nil
}

// slow works, whatever its context says, until the test lets it end. It fails if another process is
// at work on the same instance.
func (id *instanceDriver) slow(uuid string) error {
	dir := os.Getenv(scratchKey)
	f, err := os.Create(filepath.Join(dir, uuid)) // its lock ends with the process
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return &plugins.InstanceFault{Reason: "two are at work on it"}
	}
	fmt.Fprintf(os.Stderr, "spawning %s in %d\n", uuid, os.Getpid())
	awaitFile(filepath.Join(dir, goFile))
	return nil
}

// CheckSpawn answers as the image says, with what it was given.
func (id *instanceDriver) CheckSpawn(
	_ context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) error {
	switch spec.Image {
	case "missing":
		return fmt.Errorf("looking for its image: %w",
			&plugins.InstanceFault{UUID: "another instance",
				Reason: fmt.Sprintf("no image on %s: %v", node, tree.Exists(rootUUID))})
	case "error":
		return errors.New("something went wrong")
	}
	return nil
}

// Restore answers as CheckSpawn does, and otherwise with what it was given.
func (id *instanceDriver) Restore(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	if spec.Image == "other" {
		return plugins.Instance{UUID: rootUUID}, nil
	}
	return plugins.Instance{UUID: spec.UUID, Name: spec.Name, Power: plugins.PowerShutdown},
		id.CheckSpawn(ctx, node, spec, tree)
}

func (id *instanceDriver) Destroy(_ context.Context, node, uuid string) error {
	id.notify(node, uuid)
	if node == "fault" {
		return &plugins.InstanceFault{Reason: "it belongs to another tool"}
	}
	return nil
}

func (id *instanceDriver) SetPower(
	_ context.Context, node, uuid string, to plugins.PowerState, hard bool,
) (plugins.Instance, error) {
	id.notify(node, uuid)
	switch node {
	case "not-found":
		return plugins.Instance{}, fmt.Errorf("looking it up: %w", plugins.ErrInstanceNotFound)
	case "bad":
		return plugins.Instance{UUID: uuid, Power: 2}, nil
	}
	return plugins.Instance{UUID: uuid, Name: fmt.Sprint("hard ", hard), Power: to}, nil
}

func (id *instanceDriver) WatchInstances(ctx context.Context, changed func(node, uuid string)) error {
	for {
		select {
		case e := <-id.events:
			if e[0] == brokenNode {
				return errors.New("the connection to the daemon broke")
			}
			changed(e[0], e[1])
		case <-ctx.Done():
			return nil
		}
	}
}

// Depart offers the node's name, as often as an offer must not be long.
func (id *instanceDriver) Depart(_ context.Context, node, uuid string) (string, error) {
	id.notify(node, uuid)
	switch node {
	case "not-found":
		return "", fmt.Errorf("looking it up: %w", plugins.ErrInstanceNotFound)
	case "fault":
		return "", fmt.Errorf("its TPM: %w", &plugins.InstanceFault{UUID: "another instance",
			Reason: "it cannot be moved"})
	}
	return "from " + node, nil
}

// ReadFile sends the file sparse, whose parts are its letters, ten bytes from one to the next.
func (id *instanceDriver) ReadFile(_ context.Context, _, _, name string, offset int64, send plugins.ChunkFunc) error {
	switch name {
	case "backwards":
		return errors.Join(send(10, []byte("a")), send(5, []byte("b")))
	case "sparse":
	default:
		return &plugins.InstanceFault{Reason: "there is no such file"}
	}
	for i, letter := range []byte("sparse") {
		if at := int64(10 * i); at >= offset {
			if err := send(at, []byte{letter}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Arrive reads the file that the offer names, twice, and tells what it read by the name of the
// instance.
func (id *instanceDriver) Arrive(
	ctx context.Context, _ string, spec plugins.InstanceSpec, _ *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	id.notify(from.Node, spec.UUID)
	made := plugins.Instance{UUID: spec.UUID, Name: "evacuated", Power: plugins.PowerShutdown}
	if from.Evacuation {
		return made, nil
	}
	made.Name = ""
	for _, offset := range []int64{0, 30} {
		err := from.Files.ReadFile(ctx, from.Offer, offset, func(offset int64, data []byte) error {
			if spec.Image == "full" {
				return &plugins.InstanceFault{Reason: "the disk is full"}
			}
			made.Name += fmt.Sprintf("%s%d ", data, offset)
			return nil
		})
		if err != nil && spec.Image == "again" {
			made.Name += err.Error() + " "
		} else if err != nil {
			return made, err
		}
	}
	return made, nil
}

func (id *instanceDriver) Leave(ctx context.Context, node, uuid string) error {
	return id.Destroy(ctx, node, uuid)
}

// Shutdown tidies nothing up: the scratch is a directory here.
func (id *instanceDriver) Shutdown(context.Context) error { return nil }

// ConsoleLog shows how much was asked for of which instance; those of some uuids have none.
func (id *instanceDriver) ConsoleLog(_ context.Context, node, uuid string, maxBytes int) ([]byte, error) {
	switch uuid {
	case rootUUID:
		return nil, plugins.ErrInstanceNotFound
	case oneInstance:
		return []byte(fmt.Sprintf("%s %s %d \xff", node, uuid, maxBytes)), nil
	}
	return nil, &plugins.InstanceFault{Reason: "nothing is kept of it"}
}

// OpenConsole gives a console that sends back what is typed, until that is an x.
func (id *instanceDriver) OpenConsole(_ context.Context, node, uuid string) (io.ReadWriteCloser, error) {
	switch uuid {
	case rootUUID:
		return nil, plugins.ErrInstanceNotFound
	case oneInstance:
		out, in := io.Pipe()
		return &echoConsole{out, in, node}, nil
	}
	return nil, &plugins.InstanceFault{Reason: "another user has it"}
}

type echoConsole struct {
	*io.PipeReader
	in   *io.PipeWriter
	node string
}

func (e *echoConsole) Write(b []byte) (int, error) {
	switch string(b) {
	case "x":
		return 1, e.in.Close()
	case "fail":
		return 4, e.in.CloseWithError(errors.New("the pty is gone"))
	case "panic":
		panic("a defect of the driver")
	}
	if _, err := io.WriteString(e.in, e.node+":"); err != nil {
		return 0, err
	}
	return e.in.Write(b)
}

var (
	_ plugins.ConsoleLogger   = (*instanceDriver)(nil)
	_ plugins.ConsoleOpener   = (*instanceDriver)(nil)
	_ plugins.InstanceManager = (*instanceDriver)(nil)
	_ plugins.InstanceWatcher = (*instanceDriver)(nil)
	_ plugins.InstanceMover   = (*instanceDriver)(nil)
	_ plugins.SpawnChecker    = (*instanceDriver)(nil)
)
