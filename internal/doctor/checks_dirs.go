// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

func checkStateDir(_ context.Context, e *Env) []Result {
	const why = "It holds the agent's identity and records; the agent does not start without it."
	return e.directory(e.Config.Agent.StateDir, why, fail)
}

func checkRuntimeDir(_ context.Context, e *Env) []Result {
	const why = "It holds the control socket and the plugins' sockets; without it no plugin starts."
	missing := func(string, string, string) []Result {
		return skip("%s does not exist; systemd creates it when the service starts", e.Config.Agent.RuntimeDir)
	}
	return e.directory(e.Config.Agent.RuntimeDir, why, missing)
}

// directory checks a directory that the agent writes to. If it does not exist and the agent cannot
// create it, the result is missing's.
func (e *Env) directory(p, why string, missing func(found, why, fix string) []Result) []Result {
	if p == "" {
		return skip("the configuration does not set it")
	}
	owner := fmt.Sprintf("%s:%s", e.Agent.Name, e.Agent.Name)
	if dir, blocked := e.blockedBy(p); blocked {
		return fail(fmt.Sprintf("%s cannot enter %s", e.Agent.Name, dir), why, e.command("chmod o+x %s", dir))
	}
	f, err := e.stat(p)
	switch {
	case os.IsNotExist(err):
		above := e.nearest(filepath.Dir(p))
		if parent, err := e.stat(above); err == nil && e.agentMay(above, parent, 3) {
			return pass("%s does not exist yet; the agent creates it", p)
		}
		return missing(fmt.Sprintf("%s does not exist, and %s cannot create it in %s", p, e.Agent.Name, above), why,
			e.command("install -d -o %s -g %s -m 0750 %s", e.Agent.Name, e.Agent.Name, p))
	case os.IsPermission(err):
		return skip("%s is not accessible; run this command as %s or root", p, e.Agent.Name)
	case err != nil:
		return fail(reason(err, p), why, "ls -ld "+p)
	case !f.Mode.IsDir():
		return fail(p+" is not a directory", why, e.command("mv %s %s.away", p, p))
	case f.UID != e.Agent.UID && e.Agent.UID != 0:
		return fail(fmt.Sprintf("%s belongs to user %d, not to %s", p, f.UID, e.Agent.Name), why,
			e.command("chown -R %s %s", owner, p))
	case f.Mode.Perm()&0o022 != 0:
		return fail(fmt.Sprintf("%s has mode %04o: other users can create files there", p, f.Mode.Perm()),
			"Other users could replace the agent's identity or intercept its connections.",
			e.command("chmod 0750 %s", p))
	case !e.agentMay(p, f, 7):
		return fail(fmt.Sprintf("%s has mode %04o: %s cannot read and write it", p, f.Mode.Perm(), e.Agent.Name), why,
			e.command("chmod u+rwx %s", p))
	}
	return pass("%s, owned by user %d, mode %04o", p, f.UID, f.Mode.Perm())
}

// Thresholds for the state directory's file system. The agent itself needs little.
const (
	spaceError    = 32 << 20
	spaceWarning  = 256 << 20
	inodesError   = 100
	inodesWarning = 1000
)

func checkDisk(_ context.Context, e *Env) []Result {
	const why = "The agent cannot record what it owns or prepare a reshape, and the bundled Placement cannot write."
	p := e.Config.Agent.StateDir
	if p == "" {
		return skip("the configuration does not set agent.state_dir")
	}
	at := e.nearest(p)
	space, err := e.Statfs(e.path(at))
	if err != nil {
		return skip("cannot examine the file system of %s: %v", at, err)
	}
	look := fmt.Sprintf("du -xh -d1 %s | sort -h | tail", at)
	free := fmt.Sprintf("%s free of %s below %s", bytesText(space.BytesFree), bytesText(space.BytesTotal), at)
	inodes := fmt.Sprintf("%d of %d inodes free below %s", space.InodesFree, space.InodesTotal, at)
	switch {
	case space.ReadOnly:
		return fail(fmt.Sprintf("the file system of %s is mounted read-only", at),
			why+" A disk error does that; see dmesg first.",
			e.command("mount -o remount,rw \"$(findmnt -n -o TARGET -T %s)\"", at))
	case space.BytesFree < spaceError:
		return fail(free, why, look)
	case space.InodesTotal > 0 && space.InodesFree < inodesError:
		return fail(inodes, why, fmt.Sprintf("du --inodes -x -d1 %s | sort -n | tail", at))
	case space.BytesFree < spaceWarning:
		return warn(free, "When it is full: "+why, look)
	case space.InodesTotal > 0 && space.InodesFree < inodesWarning:
		return warn(inodes, "When there are none: "+why, fmt.Sprintf("du --inodes -x -d1 %s | sort -n | tail", at))
	}
	return pass("%s", free)
}

func bytesText(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
