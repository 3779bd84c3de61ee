// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

const (
	// SuiteProgram is the name of the executable with the suite.
	SuiteProgram = launch.Prefix + launch.SuiteName
	// suiteDir is where packages put it.
	suiteDir = "/usr/libexec/compute-agent"
)

// SuiteOptions say which plugin is tested, and how; see drivertest.Options.
type SuiteOptions struct {
	Path       string            `json:"path"`
	Args       []string          `json:"args,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Config     json.RawMessage   `json:"config,omitempty"`
	FormerPath string            `json:"former_path,omitempty"`
	Former     json.RawMessage   `json:"former,omitempty"`
	Instances  bool              `json:"instances,omitempty"`
	Image      string            `json:"image,omitempty"`
	Sandbox    *launch.Sandbox   `json:"sandbox,omitempty"`
	NoSandbox  bool              `json:"no_sandbox,omitempty"`
	// Select is the regular expression of the IDs of the checks that run, "" for all.
	Select       string        `json:"select,omitempty"`
	Timeout      time.Duration `json:"timeout_ns,omitempty"`
	CheckTimeout time.Duration `json:"check_timeout_ns,omitempty"`
	FailFast     bool          `json:"fail_fast,omitempty"`
}

// Spec is how the plugin is started.
func (o SuiteOptions) Spec() pluginhost.Spec {
	return pluginhost.Spec{Path: o.Path, Args: o.Args, Env: o.Env, Config: o.Config, Sandbox: o.Sandbox}
}

// Event is one document that the suite's process writes: all checks first, then, of a run, the
// report without results, each result, and the end.
type Event struct {
	Checks  []Check `json:"checks,omitempty"`
	Started *Report `json:"started,omitempty"`
	Result  *Result `json:"result,omitempty"`
	End     *End    `json:"end,omitempty"`
}

// End is the end of a run: a report, or what is left of it, and why the plugin cannot be tested.
type End struct {
	Report Report `json:"report"`
	Error  string `json:"error,omitempty"`
	// Former says that the error is about SuiteOptions.FormerPath.
	Former bool `json:"former,omitempty"`
}

// FileError says why an executable, or a configuration of it, cannot be used. Former says that it
// is SuiteOptions.FormerPath, which cannot be used as a former release of the plugin.
type FileError struct {
	Problem string
	Former  bool
}

func (e *FileError) Error() string { return e.Problem }

// Process is a process with the suite.
type Process struct {
	// Checks are all that the suite has, in the order in which they run.
	Checks []Check

	cmd    *exec.Cmd
	input  io.WriteCloser
	output io.Reader
	events *json.Decoder
}

// StartSuite starts the suite's program. What that writes to standard error goes to stderr. The
// caller calls Close.
func StartSuite(stderr io.Writer) (*Process, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(program)} //nolint:noctx // the end of its input ends it
	p.cmd.Stderr = stderr
	if p.output, err = p.cmd.StdoutPipe(); err == nil {
		p.input, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("starting the conformance suite: %w", err)
	}
	p.events = json.NewDecoder(p.output)
	first, err := p.next()
	if err != nil {
		p.Close()
		return nil, err
	}
	p.Checks = first.Checks
	return p, nil
}

// find returns the path of the suite's program: beside this one, or where packages put it.
func find() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", SuiteProgram, err)
	}
	beside := filepath.Dir(self)
	for _, dir := range []string{beside, filepath.Join(beside, "../libexec/compute-agent"), suiteDir} {
		if st, err := os.Stat(filepath.Join(dir, SuiteProgram)); err == nil &&
			st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return filepath.Join(dir, SuiteProgram), nil
		}
	}
	return "", fmt.Errorf(
		"the conformance suite is not installed: there is no %s in %s or %s. Install it: the package "+
			"compute-agent-common has it, and make build makes it",
		SuiteProgram, beside, suiteDir)
}

// next reads an event. At the end of the output, the error says how the process ended.
func (p *Process) next() (Event, error) {
	var e Event
	err := p.events.Decode(&e)
	if errors.Is(err, io.EOF) {
		if err = p.cmd.Wait(); err == nil {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		return Event{}, fmt.Errorf("the conformance suite (%s): %w", p.cmd.Path, err)
	}
	return e, nil
}

// Run tests a plugin, once. Started is called before the first check, with a report without
// results, and each with every result as it comes. When ctx ends, the suite is stopped, and the
// report has what was done until then.
//
// Errors: the plugin cannot be tested at all (no such file, ctx ended); a [*FileError]. A plugin
// that fails every check is a Report and not an error.
func (p *Process) Run(ctx context.Context, o SuiteOptions, started func(Report), each func(Result)) (Report, error) {
	if err := json.NewEncoder(p.input).Encode(o); err != nil {
		return Report{}, fmt.Errorf("the conformance suite (%s): %w", p.cmd.Path, err)
	}
	defer context.AfterFunc(ctx, func() { _ = p.input.Close() })()
	for {
		e, err := p.next()
		switch {
		case err != nil:
			return Report{}, err
		case e.Started != nil:
			started(*e.Started)
		case e.Result != nil:
			each(*e.Result)
		case e.End == nil:
		case e.End.Former:
			return e.End.Report, &FileError{e.End.Error, true}
		case e.End.Error != "" && ctx.Err() != nil:
			return e.End.Report, ctx.Err()
		case e.End.Error != "":
			return e.End.Report, errors.New(e.End.Error)
		default:
			return e.End.Report, nil
		}
	}
}

// Close ends the process.
func (p *Process) Close() {
	_ = p.input.Close()
	_, _ = io.Copy(io.Discard, p.output) // its end is that of the process
	_ = p.cmd.Wait()                     // an end before its time is an error of next
}
