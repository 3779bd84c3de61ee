// SPDX-License-Identifier: Apache-2.0

package serverstate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// migrationTransition is what becomes of a server that moves, and what is then wanted of hosts h1
// and h2, which are the source and the destination of its first migration. The state after it is
// "same", "refused: WHY", or as [moving] reads it.
type migrationTransition struct{ from, event, to, h1, h2 string }

var beginnings = []migrationTransition{
	{"active/ running on h1", "migrate",
		"active/resize_prep running on h1; cold accepted h1>", "present", ""},
	{"stopped/ off on h1", "migrate to h2",
		"stopped/resize_prep off on h1; cold accepted h1>h2? was-stopped", "present", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "migrate again", "same", "present", ""},
	{"active/ running on h1", "migrate to h1", "refused: is on host h1 already", "present", ""},
	{"active/ running on h1", "migrate -h1", "refused: Service is unavailable", "present", ""},
	{"error/ on h1", "migrate", "refused: in vm_state error", "idle", ""},
	{"active/powering-off running on h1", "migrate", "refused: in task_state powering-off", "shutdown", ""},
	{"active/ hidden running on h1", "migrate", "refused: there is no server", "", ""},
	{"deleted/ deleted on h1", "migrate", "refused: there is no server", "", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "migrate",
		"refused: in task_state resize_prep", "present", ""},
	{"resized/ running on h2; cold finished h1>h2", "migrate",
		"refused: in vm_state resized", "departing (finished)", "present"},

	{"active/ running on h1", "evacuate -h1",
		"active/rebuilding running on h1; evacuation accepted h1>", "idle", ""},
	{"active/ running on h1", "evacuate", "refused: is still in use", "present", ""},
	{"stopped/powering-on off on h1", "evacuate to h2 -h1",
		"stopped/rebuilding off on h1; evacuation accepted h1>h2? was-stopped", "idle", ""},
	{"error/ fault on h1", "evacuate -h1",
		"error/rebuilding fault on h1; evacuation accepted h1> was-error", "idle", ""},
	{"active/rebuilding running kept on h1", "evacuate -h1",
		"active/rebuilding running on h1; evacuation accepted h1>", "idle", ""},
	{"active/rebuilding running on h1; evacuation accepted h1>", "evacuate again -h1", "same", "idle", ""},
	{"active/rebuilding running on h1; evacuation accepted h1>", "evacuate -h1",
		"refused: is accepted; an administrator can abort it", "idle", ""},

	// again, after one that is over but for a host that has not come back
	{"active/ running on h2; evacuation done h1>h2", "migrate",
		"active/resize_prep running on h2; evacuation done h1>h2; cold accepted h2>", "left (done)", "present"},
	{"active/ running on h2; cold confirming h1>h2", "migrate",
		"active/resize_prep running on h2; cold confirming h1>h2; cold accepted h2>", "left (confirming)", "present"},
	{"active/ running on h1; cold error h1> giveback", "migrate", "refused: are not given back yet", "present", ""},
	{"active/resize_reverting fault on h1; cold error h1>h2", "evacuate -h1",
		"active/rebuilding fault on h1; cold error h1>h2 closed; evacuation accepted h1>", "idle", ""},
	{"resized/resize_reverting on h1; cold reverting h1>h2 was-stopped", "evacuate -h1",
		"stopped/rebuilding on h1; cold reverted h1>h2 was-stopped closed; evacuation accepted h1> was-stopped",
		"idle", ""},
	{"resized/resize_reverting on h2; cold reverting h1>h2 giveback", "evacuate -h2",
		"refused: is reverting; an administrator can abort it", "departing (reverting)", ""},
	{"resized/resize_reverting running on h2; cold reverting h1>h2", "evacuate -h2",
		"refused: is reverting; an administrator can abort it", "departing (reverting)", "leaving (reverting)"},

	// a build that its host cannot do
	{"building/spawning retry on h1", "h1 failed fault",
		"building/scheduling fault on h1; build accepted h1> was-building", "", ""},
	{"building/scheduling fault on h1; build accepted h1> was-building", "h1 failed fault", "same", "", ""},
	{"building/spawning hidden on h1", "h1 failed fault", "refused: not on this host", "", ""},
}

var destinations = []migrationTransition{
	{"active/resize_prep running on h1; cold accepted h1>", "to h2",
		"active/resize_migrating running on h1; cold pre-migrating h1>h2", "departing (pre-migrating)", ""},
	{"active/resize_prep running on h1; cold accepted h1>h3?", "to h2",
		"active/resize_migrating running on h1; cold pre-migrating h1>h2", "departing (pre-migrating)", ""},
	{"active/rebuilding running on h1; evacuation accepted h1>", "to h2",
		"active/rebuilding running on h2; evacuation pre-migrating h1>h2",
		"departing (pre-migrating)", "arriving (pre-migrating)"},
	{"building/scheduling fault on h1; build accepted h1> was-building", "to h2",
		"building/spawning on h2; build done h1>h2 was-building closed", "", "present"},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "to h2",
		"same", "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "to h3",
		"refused: is pre-migrating", "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "to h2 otherwise",
		"refused: is pre-migrating", "departing (pre-migrating)", ""},
	{"active/resize_migrating running fault on h1; cold error h1>h2 giveback", "to h2",
		"refused: is error", "departing (error)", ""},
	{"active/deleting running on h1; cold accepted h1>", "to h2",
		"refused: in task_state deleting", "gone (accepted)", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "to h1",
		"refused: has not left host h1 yet", "present", ""},
	{"active/resize_prep running on h2; evacuation done h1>h2; cold accepted h2>", "to h1 second",
		"refused: has not left host h1 yet", "left (done)", "present"},
	{"active/resize_prep running on h2; evacuation done h1>h2; cold accepted h2>", "to h3 second",
		"active/resize_migrating running on h2; evacuation done h1>h2; cold pre-migrating h2>h3",
		"left (done)", "departing (pre-migrating)"},
	{"active/resize_prep running on h2; evacuation completed h1>h2 closed; cold accepted h2>", "to h1 second",
		"active/resize_migrating running on h2; evacuation completed h1>h2 closed; cold pre-migrating h2>h1",
		"", "departing (pre-migrating)"},
	{"active/resize_prep running on h1; cold accepted h1>", "to /", "refused: is no name of a host", "present", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "to h2 nameless",
		"refused: is no name of a node", "present", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "to h2 anonymous", "refused: is not a uuid", "present", ""},
	{"active/ running on h1; cold error h1> closed", "to h2", "refused: there is no open migration", "present", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "nothing", "refused: has no member", "present", ""},

	{"active/resize_prep running on h1; cold accepted h1>", "unplaced",
		"active/ running fault on h1; cold error h1> closed", "present", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "unplaced claimed",
		"active/ running fault on h1; cold error h1> giveback", "present", ""},
	{"active/rebuilding running on h1; evacuation accepted h1>", "unplaced",
		"error/ running fault on h1; evacuation failed h1> closed", "idle", ""},
	{"active/rebuilding running on h1; evacuation accepted h1>", "unplaced claimed",
		"error/ running fault on h1; evacuation failed h1> giveback", "idle", ""},
	{"building/scheduling fault on h1; build accepted h1> was-building", "unplaced",
		"error/ fault on h1; build failed h1> was-building closed", "", ""},
	{"active/ running on h1; cold error h1> giveback", "unplaced", "same", "present", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "unplaced",
		"refused: is pre-migrating", "departing (pre-migrating)", ""},
	{"active/deleting running on h1; cold accepted h1>", "unplaced",
		"refused: in task_state deleting", "gone (accepted)", ""},
	{"deleted/ deleted due on h1; cold error h1> giveback", "unplaced", "refused: is error", "gone (error)", ""},
}

var hostReports = []migrationTransition{
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 departed",
		"active/resize_finish off on h2; cold post-migrating h1>h2 offer",
		"departing (post-migrating)", "arriving (post-migrating)"},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 departed longest",
		"active/resize_finish off on h2; cold post-migrating h1>h2 offer",
		"departing (post-migrating)", "arriving (post-migrating)"},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 departed fault",
		"active/resize_migrating running fault on h1; cold error h1>h2 giveback", "departing (error)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 departed long",
		"refused: the offer", "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 departed binary",
		"refused: the offer", "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 departed broken",
		"refused: 99 is no power state", "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 arrived",
		`refused: "departing" is wanted`, "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 left",
		`refused: "departing" is wanted`, "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h2 arrived",
		"refused: has nothing to do", "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h3 departed",
		"refused: not on this host", "departing (pre-migrating)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h2 power",
		"refused: not on this host", "departing (pre-migrating)", ""},
	{"active/resize_prep running on h1; cold accepted h1>h2?", "h2 arrived",
		"refused: not on this host", "present", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "h1 departed", "refused: has nothing to do", "present", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "h1 power off",
		"active/resize_migrating off on h1; cold pre-migrating h1>h2", "departing (pre-migrating)", ""},
	{"active/resize_finish off on h2; cold post-migrating h1>h2 offer", "h1 departed",
		"same", "departing (post-migrating)", "arriving (post-migrating)"},
	{"active/resize_finish off on h2; cold post-migrating h1>h2 offer", "h1 departed fault",
		"same", "departing (post-migrating)", "arriving (post-migrating)"},
	{"active/resize_finish off on h2; cold post-migrating h1>h2 offer", "h1 left",
		`refused: "departing" is wanted`, "departing (post-migrating)", "arriving (post-migrating)"},
	{"active/resize_finish off on h2; cold post-migrating h1>h2 offer", "h2 left",
		`refused: "arriving" is wanted`, "departing (post-migrating)", "arriving (post-migrating)"},
	{"active/resize_migrating running fault on h1; cold error h1>h2 giveback", "h1 departed",
		"same", "departing (error)", ""},
	{"active/ running fault on h1; cold error h1>h2 closed", "h1 departed", "same", "present", ""},
	{"active/resize_migrating running on h2; evacuation done h1>h2; cold pre-migrating h2>h3", "h2 departed",
		"refused: has nothing to do", "left (done)", "departing (pre-migrating)"},
	{"active/resize_migrating running on h2; evacuation done h1>h2; cold pre-migrating h2>h3", "h2 departed second",
		"active/resize_finish off on h3; evacuation done h1>h2; cold post-migrating h2>h3 offer",
		"left (done)", "departing (post-migrating)"},

	{"active/resize_finish off on h2; cold post-migrating h1>h2 offer", "h2 arrived",
		"resized/ running on h2; cold finished h1>h2", "departing (finished)", "present"},
	{"stopped/resize_finish off on h2; cold post-migrating h1>h2 was-stopped", "h2 arrived off",
		"resized/ off on h2; cold finished h1>h2 was-stopped", "departing (finished)", "present"},
	{"active/resize_finish off on h2; cold post-migrating h1>h2 offer", "h2 arrived fault",
		"active/resize_finish off fault on h2; cold error h1>h2 offer giveback", "departing (error)", ""},
	{"resized/ running on h2; cold finished h1>h2", "h2 arrived",
		"refused: has nothing to do", "departing (finished)", "present"},
	{"active/resize_finish off fault on h2; cold error h1>h2 offer giveback", "h2 arrived",
		"refused: has nothing to do", "departing (error)", ""},
	{"error/rebuilding fault on h2; evacuation pre-migrating h1>h2 was-error", "h2 arrived",
		"active/ running on h2; evacuation done h1>h2 was-error", "left (done)", "present"},
	{"active/rebuilding running on h2; evacuation pre-migrating h1>h2", "h2 arrived paused",
		"active/ on h2; evacuation done h1>h2", "left (done)", "present"},
	{"stopped/rebuilding off on h2; evacuation pre-migrating h1>h2 was-stopped", "h2 arrived off",
		"stopped/ off on h2; evacuation done h1>h2 was-stopped", "left (done)", "present"},
	{"active/rebuilding running on h2; evacuation pre-migrating h1>h2", "h2 arrived fault",
		"error/rebuilding fault on h2; evacuation failed h1>h2 giveback", "departing (failed)", ""},
	{"active/rebuilding running on h2; evacuation pre-migrating h1>h2", "h1 departed",
		"same", "departing (pre-migrating)", "arriving (pre-migrating)"},
	{"active/rebuilding running on h2; evacuation pre-migrating h1>h2", "h1 left",
		`refused: "departing" is wanted`, "departing (pre-migrating)", "arriving (pre-migrating)"},
	{"active/ running on h2; evacuation done h1>h2", "h1 left",
		"active/ running on h2; evacuation completed h1>h2 closed", "", "present"},
	{"active/ running on h2; evacuation completed h1>h2 closed", "h1 left",
		"refused: not on this host", "", "present"},
	{"active/ running on h2; evacuation done h1>h2", "h2 power missing",
		"active/ on h2; evacuation done h1>h2", "departing (done)", "present"},
	{"active/ on h2; evacuation done h1>h2", "h1 departed", "same", "departing (done)", "present"},
	{"active/ on h2; evacuation done h1>h2", "h1 left",
		`refused: "departing" is wanted`, "departing (done)", "present"},
	{"active/ on h2; evacuation done h1>h2", "h2 power",
		"active/ running on h2; evacuation done h1>h2", "left (done)", "present"},
}

// decisions: which guest of a server goes, and that none goes while the other one may be missing.
var decisions = []migrationTransition{
	{"resized/ running on h2; cold finished h1>h2", "h1 departed",
		"resized/ running on h2; cold finished h1>h2 there", "departing (finished)", "present"},
	{"resized/ running on h2; cold finished h1>h2", "h1 departed missing fault",
		"resized/ running on h2; cold finished h1>h2 missing", "departing (finished)", "present"},
	{"resized/ running on h2; cold finished h1>h2 there", "h1 departed", "same", "departing (finished)", "present"},
	{"resized/ running on h2; cold finished h1>h2 missing", "h1 departed missing fault",
		"same", "departing (finished)", "present"},
	{"resized/ running on h2; cold finished h1>h2 missing", "h1 departed",
		"resized/ running on h2; cold finished h1>h2 there", "departing (finished)", "present"},
	{"resized/ running on h2; cold finished h1>h2 there", "h1 departed missing fault",
		"resized/ running on h2; cold finished h1>h2 missing", "departing (finished)", "present"},

	{"resized/ running on h2; cold finished h1>h2", "confirm",
		"resized/ running on h2; cold confirming h1>h2", "left (confirming)", "present"},
	{"resized/ off on h2; cold finished h1>h2 missing", "confirm",
		"resized/ off on h2; cold confirming h1>h2 missing", "left (confirming)", "present"},
	{"resized/ running on h2; cold confirming h1>h2", "confirm", "same", "left (confirming)", "present"},
	{"resized/ on h2; cold finished h1>h2", "confirm",
		"refused: use 'revertResize', which takes it back. Its new host h2 has no guest of it, and the one on the " +
			"old host h1 would be removed.", "departing (finished)", "present"},
	{"resized/ on h2; cold finished h1>h2 there", "confirm",
		"refused: use 'revertResize', which takes it back. Its new host h2 has no guest of it, and the one on the " +
			"old host h1 would be removed.", "departing (finished)", "present"},
	{"resized/ on h2; cold finished h1>h2 missing", "confirm",
		"refused: use 'revertResize', and then a hard reboot, which makes its guest again over its disks. Neither " +
			"host h2 nor host h1 has one.", "departing (finished)", "present"},
	{"active/resize_finish off on h2; cold post-migrating h1>h2", "confirm",
		"refused: in vm_state active", "departing (post-migrating)", "arriving (post-migrating)"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2", "confirm",
		"refused: in task_state resize_reverting", "departing (reverting)", "leaving (reverting)"},
	{"resized/deleting running on h2; cold finished h1>h2", "confirm",
		"refused: in vm_state resized", "left (finished)", "gone"},
	{"active/ running on h2; cold confirming h1>h2", "confirm",
		"refused: in vm_state active", "left (confirming)", "present"},
	{"resized/ running on h3; evacuation done h1>h2; cold finished h2>h3", "confirm",
		"refused: is done", "left (done)", "departing (finished)"},

	{"resized/ running on h2; cold confirming h1>h2", "h1 left",
		"active/ running on h2; cold confirmed h1>h2 closed", "", "present"},
	{"resized/ off on h2; cold confirming h1>h2 missing", "h1 left",
		"stopped/ off on h2; cold confirmed h1>h2 missing closed", "", "present"},
	{"active/ running on h2; cold confirmed h1>h2 closed", "h1 left", "refused: not on this host", "", "present"},
	{"active/ running on h2; cold confirmed h1>h2 closed", "h2 left", "same", "", "present"},
	{"resized/ running on h2; cold confirming h1>h2", "h1 departed",
		`refused: "left" is wanted`, "left (confirming)", "present"},
	{"resized/ running on h2; cold confirming h1>h2", "h2 power missing",
		"resized/ on h2; cold confirming h1>h2", "departing (confirming)", "present"},
	{"resized/ on h2; cold confirming h1>h2", "h1 left",
		`refused: "departing" is wanted`, "departing (confirming)", "present"},
	{"resized/ on h2; cold confirming h1>h2", "h1 departed",
		"resized/ on h2; cold confirming h1>h2 there", "departing (confirming)", "present"},
	{"resized/ on h2; cold confirming h1>h2", "h2 power",
		"resized/ running on h2; cold confirming h1>h2", "left (confirming)", "present"},

	{"resized/ running on h2; cold finished h1>h2", "revert", // its agent does not say whether it has the guest
		"resized/resize_reverting running on h2; cold reverting h1>h2", "departing (reverting)", "leaving (reverting)"},
	{"resized/ running on h2; cold finished h1>h2", "revert -h1",
		"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "departing (reverting)", "present"},
	{"resized/ running on h2; cold finished h1>h2 there", "revert",
		"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "departing (reverting)", "present"},
	{"resized/ running on h2; cold finished h1>h2 missing", "revert",
		"refused: use 'confirmResize', which keeps it. Its old host h1 has no guest of it, and the one on the " +
			"new host h2 would be removed.", "departing (finished)", "present"},
	{"resized/ on h2; cold finished h1>h2 there", "revert",
		"resized/resize_reverting on h2; cold reverting h1>h2 asked", "departing (reverting)", "present"},
	{"resized/ on h2; cold finished h1>h2 missing", "revert",
		"resized/resize_reverting on h2; cold reverting h1>h2 missing giveback; evacuation done h2>h1",
		"departing (reverting)", ""},
	{"resized/ running on h2; cold confirming h1>h2", "revert",
		"refused: is confirming", "left (confirming)", "present"},
	{"resized/ on h2; cold confirming h1>h2", "revert",
		"resized/resize_reverting on h2; cold reverting h1>h2 asked", "departing (reverting)", "present"},
	{"resized/ on h2; cold confirming h1>h2 missing", "revert",
		"resized/resize_reverting on h2; cold reverting h1>h2 missing giveback; evacuation done h2>h1",
		"departing (reverting)", ""},
	{"resized/resize_reverting running on h2; cold reverting h1>h2", "revert",
		"refused: in task_state resize_reverting", "departing (reverting)", "leaving (reverting)"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "h1 departed",
		"resized/resize_reverting running on h2; cold reverting h1>h2 there",
		"departing (reverting)", "leaving (reverting)"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "h1 departed missing fault",
		"resized/ running fault on h2; cold finished h1>h2 missing", "departing (finished)", "present"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "h1 departed missing",
		"resized/ running fault on h2; cold finished h1>h2 missing", "departing (finished)", "present"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 there", "h1 departed missing fault",
		"same", "departing (reverting)", "leaving (reverting)"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2", "h1 departed",
		"same", "departing (reverting)", "leaving (reverting)"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "h2 left",
		"refused: has nothing to do", "departing (reverting)", "present"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 there", "h2 left",
		"resized/resize_reverting running on h2; cold reverting h1>h2 there giveback", "departing (reverting)", ""},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 giveback", "h2 left",
		"refused: has nothing to do", "departing (reverting)", ""},
}

var returns = []migrationTransition{
	{"resized/resize_reverting running on h2; cold reverting h1>h2 there giveback", "given-back",
		"resized/resize_reverting on h1; cold reverting h1>h2 there", "running", ""},
	{"resized/resize_reverting off on h2; cold reverting h1>h2 was-stopped giveback", "given-back",
		"resized/resize_reverting on h1; cold reverting h1>h2 was-stopped", "shutdown", ""},
	{"resized/resize_reverting on h2; cold reverting h1>h2 missing giveback; evacuation done h2>h1", "given-back",
		"resized/resize_reverting on h1; cold reverting h1>h2 missing; evacuation done h2>h1",
		"running", "departing (done)"},
	{"active/resize_migrating running fault on h1; cold error h1>h2 giveback", "given-back",
		"active/resize_reverting fault on h1; cold error h1>h2", "running", ""},
	{"active/resize_finish off fault on h2; cold error h1>h2 offer giveback", "given-back",
		"active/resize_reverting fault on h1; cold error h1>h2 offer", "running", ""},
	{"error/rebuilding fault on h2; evacuation failed h1>h2 giveback", "given-back",
		"error/ fault on h1; evacuation failed h1>h2 closed", "idle", ""},
	{"active/ running on h1; cold error h1> giveback", "given-back",
		"active/ running on h1; cold error h1> closed", "present", ""},
	{"active/rebooting_hard running on h1; evacuation failed h1> giveback", "given-back", // since it ended
		"active/rebooting_hard running on h1; evacuation failed h1> closed", "shutdown", ""},
	{"resized/resize_reverting on h1; cold reverting h1>h2", "given-back", "same", "running", ""},
	{"active/resize_prep running on h1; cold accepted h1>", "given-back",
		"refused: are not to be given back", "present", ""},
	{"resized/ running on h2; cold finished h1>h2", "given-back",
		"refused: are not to be given back", "departing (finished)", "present"},
	{"active/ running on h1; cold error h1> closed", "given-back",
		"refused: there is no open migration", "present", ""},

	{"resized/resize_reverting on h1; cold reverting h1>h2 there", "h1 settled",
		"active/ running on h1; cold reverted h1>h2 there closed", "present", ""},
	{"resized/resize_reverting on h1; cold reverting h1>h2 was-stopped", "h1 settled off",
		"stopped/ off on h1; cold reverted h1>h2 was-stopped closed", "present", ""},
	{"resized/resize_reverting on h1; cold reverting h1>h2", "h1 settled off fault",
		"stopped/ off fault on h1; cold reverted h1>h2 closed", "present", ""},
	{"active/resize_reverting fault on h1; cold error h1>h2 offer", "h1 settled",
		"active/ running fault on h1; cold error h1>h2 closed", "present", ""},
	{"resized/resize_reverting on h1; cold reverting h1>h2", "h1 departed",
		"refused: has nothing to do", "running", ""},
	{"resized/resize_reverting on h1; cold reverting h1>h2", "h2 left", "refused: has nothing to do", "running", ""},
	{"active/ running on h1; cold reverted h1>h2 closed", "h2 left", "refused: not on this host", "present", ""},
	{"resized/resize_reverting running on h2; cold reverting h1>h2", "h2 settled", "refused: neither running again",
		"departing (reverting)", "leaving (reverting)"},

	// neither host had a guest: the destination leaves when the source has made one again
	{"resized/resize_reverting on h1; cold reverting h1>h2 missing; evacuation done h2>h1", "h1 settled missing fault",
		"stopped/ fault on h1; cold reverted h1>h2 missing closed; evacuation done h2>h1",
		"present", "departing (done)"},
	{"stopped/rebooting_hard fault on h1; cold reverted h1>h2 closed; evacuation done h2>h1", "h1 settled off",
		"stopped/reboot_started_hard off fault on h1; cold reverted h1>h2 closed; evacuation done h2>h1",
		"running", "left (done)"},
	{"active/ running on h1; cold reverted h1>h2 closed; evacuation done h2>h1", "h2 left second",
		"active/ running on h1; cold reverted h1>h2 closed; evacuation completed h2>h1 closed", "present", ""},
}

var aborts = []migrationTransition{
	{"active/resize_prep running on h1; cold accepted h1>", "abort",
		"active/ running on h1; cold error h1> giveback", "present", ""},
	{"stopped/resize_prep off on h1; cold accepted h1>h2? was-stopped", "abort -h1",
		"stopped/ off on h1; cold error h1>h2? was-stopped giveback", "present", ""},
	{"active/rebuilding running on h1; evacuation accepted h1>", "abort -h1",
		"active/ running on h1; evacuation failed h1> giveback", "present", ""},
	{"building/scheduling fault on h1; build accepted h1> was-building", "abort -h1",
		"refused: and is not aborted", "", ""},
	{"active/ running on h1; cold error h1> giveback", "abort", "same", "present", ""},

	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "abort -h1",
		"active/resize_migrating running fault on h1; cold error h1>h2 giveback", "departing (error)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "abort -h2",
		"refused: host h1, which is up, ends it", "departing (pre-migrating)", ""},
	{"active/resize_migrating running fault on h1; cold error h1>h2 giveback", "abort -h1",
		"same", "departing (error)", ""},
	{"active/resize_finish off on h2; cold post-migrating h1>h2 offer", "abort -h2",
		"active/resize_finish off fault on h2; cold error h1>h2 offer giveback; evacuation done h2>h1",
		"departing (error)", ""},
	{"active/resize_finish off on h2; cold post-migrating h1>h2", "abort -h1",
		"refused: host h2, which is up, ends it", "departing (post-migrating)", "arriving (post-migrating)"},
	{"active/resize_finish off fault on h2; cold error h1>h2 giveback; evacuation done h2>h1", "given-back",
		"active/resize_reverting fault on h1; cold error h1>h2; evacuation done h2>h1", "running", "departing (done)"},
	{"active/resize_reverting fault on h1; cold error h1>h2; evacuation done h2>h1", "h1 settled",
		"active/ running fault on h1; cold error h1>h2 closed; evacuation done h2>h1", "present", "left (done)"},
	{"active/rebuilding running on h2; evacuation pre-migrating h1>h2", "abort -h2",
		"error/rebuilding fault on h2; evacuation failed h1>h2 giveback; evacuation done h2>h1",
		"departing (failed)", ""},
	{"active/rebuilding running on h2; evacuation pre-migrating h1>h2", "abort -h1",
		"refused: host h2, which is up, ends it", "departing (pre-migrating)", "arriving (pre-migrating)"},
	{"error/rebuilding fault on h2; evacuation failed h1>h2 giveback; evacuation done h2>h1", "given-back",
		"error/ fault on h1; evacuation failed h1>h2 closed; evacuation done h2>h1", "idle", "departing (done)"},
	{"active/ running on h2; evacuation done h1>h2", "abort -h1",
		"refused: is done, and waits for no host", "left (done)", "present"},
	{"resized/ running on h2; cold finished h1>h2", "abort -h1 -h2",
		"refused: is finished, and waits for no host", "departing (finished)", "present"},

	{"resized/ running on h2; cold confirming h1>h2", "abort -h1",
		"active/ running on h2; cold confirming h1>h2", "left (confirming)", "present"},
	{"resized/ off on h2; cold confirming h1>h2", "abort -h1",
		"stopped/ off on h2; cold confirming h1>h2", "left (confirming)", "present"},
	{"active/ running on h2; cold confirming h1>h2", "abort -h1", "same", "left (confirming)", "present"},
	{"resized/ running on h2; cold confirming h1>h2", "abort -h2",
		"refused: host h1, which is up, ends it", "left (confirming)", "present"},
	{"active/ running on h2; cold confirming h1>h2", "h1 left",
		"active/ running on h2; cold confirmed h1>h2 closed", "", "present"},

	{"resized/resize_reverting running on h2; cold reverting h1>h2 there", "abort -h2",
		"resized/resize_reverting running on h2; cold reverting h1>h2 there giveback; evacuation done h2>h1",
		"departing (reverting)", ""},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 there", "abort -h1",
		"refused: host h2, which is up, ends it", "departing (reverting)", "leaving (reverting)"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "abort -h1",
		"resized/ running fault on h2; cold finished h1>h2", "departing (finished)", "present"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "abort",
		"resized/ running fault on h2; cold finished h1>h2", "departing (finished)", "present"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 asked", "abort -h2", // its guest may be the only one
		"resized/resize_reverting running on h2; cold reverting h1>h2 asked giveback; evacuation done h2>h1",
		"departing (reverting)", ""},
	{"resized/resize_reverting running on h2; cold reverting h1>h2 asked giveback; evacuation done h2>h1", "given-back",
		"resized/resize_reverting on h1; cold reverting h1>h2 asked; evacuation done h2>h1",
		"running", "departing (done)"},
	{"resized/resize_reverting on h1; cold reverting h1>h2", "abort -h1",
		"refused: evacuate it if that is down", "running", ""},
	{"active/resize_reverting fault on h1; cold error h1>h2", "abort -h1",
		"refused: evacuate it if that is down", "running", ""},
	{"active/deleting running on h1; cold pre-migrating h1>h2", "abort -h1",
		"refused: is being deleted", "gone (pre-migrating)", ""},
}

var deletions = []migrationTransition{
	{"active/resize_prep running on h1; cold accepted h1>", "delete",
		"active/deleting running on h1; cold accepted h1>", "gone (accepted)", ""},
	{"active/resize_migrating running on h1; cold pre-migrating h1>h2", "delete",
		"active/deleting running on h1; cold pre-migrating h1>h2", "gone (pre-migrating)", ""},
	{"active/resize_finish off on h2; cold post-migrating h1>h2 offer", "delete",
		"active/deleting off on h2; cold post-migrating h1>h2 offer", "left (post-migrating)", "gone"},
	{"resized/resize_reverting running on h2; cold reverting h1>h2", "delete",
		"resized/deleting running on h2; cold reverting h1>h2", "left (reverting)", "gone"},
	{"resized/resize_reverting on h1; cold reverting h1>h2", "delete",
		"resized/deleting on h1; cold reverting h1>h2", "gone (reverting)", ""},
	{"active/ on h2; evacuation done h1>h2", "delete", // not kept any more
		"active/deleting on h2; evacuation done h1>h2", "left (done)", "gone"},
	{"building/scheduling fault on h1; build accepted h1> was-building", "delete",
		"building/deleting fault on h1; build accepted h1> was-building", "gone (accepted)", ""},
	{"active/ running on h1; cold error h1> giveback", "delete",
		"active/deleting running on h1; cold error h1> giveback", "gone (error)", ""},
	{"active/rebuilding running on h1; evacuation accepted h1>", "delete -h1",
		"deleted/ deleted due unfreed on h1; evacuation accepted h1> giveback", "gone (accepted)", ""},
	{"active/ running on h1; cold error h1> giveback", "delete -h1",
		"deleted/ deleted due unfreed on h1; cold error h1> giveback", "gone (error)", ""},
	{"active/deleting running on h1; cold error h1> giveback", "h1 gone",
		"deleted/ deleted on h1; cold error h1> giveback", "", ""},
	{"deleted/ deleted on h1; cold error h1> giveback", "given-back",
		"deleted/ deleted on h1; cold error h1> closed", "", ""},

	{"active/deleting running on h1; cold pre-migrating h1>h2", "h1 gone",
		"deleted/ deleted on h1; cold pre-migrating h1>h2 giveback", "", ""},
	{"active/deleting off on h2; cold post-migrating h1>h2 offer", "h2 gone",
		"deleted/ deleted on h2; cold post-migrating h1>h2 offer", "left (post-migrating)", ""},
	{"active/deleting off on h2; cold post-migrating h1>h2 offer", "h1 left",
		"active/deleting off on h2; cold confirmed h1>h2 closed", "", "gone"},
	{"deleted/ deleted on h2; cold post-migrating h1>h2", "h1 left",
		"deleted/ deleted on h2; cold confirmed h1>h2 closed", "", ""},
	{"resized/deleting running on h2; cold reverting h1>h2", "h1 left",
		"active/deleting running on h2; cold confirmed h1>h2 closed", "", "gone"},
	{"active/deleting running on h2; evacuation pre-migrating h1>h2", "h1 left",
		"active/deleting running on h2; evacuation completed h1>h2 closed", "", "gone"},
	{"active/deleting running on h2; evacuation pre-migrating h1>h2", "h2 arrived",
		"refused: has nothing to do", "left (pre-migrating)", "gone"},
	{"active/deleting running on h1; cold pre-migrating h1>h2", "h1 departed",
		`refused: "gone" is wanted`, "gone (pre-migrating)", ""},
	{"active/deleting off fault on h2; cold error h1>h2 giveback", "given-back",
		"refused: is being deleted", "left (error)", "gone"},
	{"deleted/ deleted on h1; cold pre-migrating h1>h2 giveback", "given-back",
		"deleted/ deleted on h1; cold pre-migrating h1>h2 closed", "", ""},
	{"deleted/ deleted due on h1; evacuation accepted h1> giveback", "given-back",
		"deleted/ deleted due on h1; evacuation accepted h1> closed", "gone", ""},

	{"active/resize_prep running on h1; cold accepted h1>", "soft", "refused: is being moved", "present", ""},
	{"resized/ running on h2; cold confirming h1>h2", "soft",
		"refused: is being moved", "left (confirming)", "present"},
	{"building/scheduling fault on h1; build accepted h1> was-building", "soft", // for good, as nothing was made
		"building/deleting fault on h1; build accepted h1> was-building", "gone (accepted)", ""},
	{"active/ running on h2; evacuation done h1>h2", "soft",
		"active/soft-deleting soft running on h2; evacuation done h1>h2", "left (done)", "shutdown"},
	{"deleted/ deleted on h2; cold post-migrating h1>h2", "soft", "same", "left (post-migrating)", ""},
	{"resized/ running on h2; cold finished h1>h2", "reset",
		"refused: is being moved", "departing (finished)", "present"},
	{"resized/ running on h2; cold confirming h1>h2", "reset",
		"refused: is being moved", "left (confirming)", "present"},
	{"active/ running on h2; cold confirming h1>h2", "reset",
		"error/ running on h2; cold confirming h1>h2", "left (confirming)", "idle"},
	{"active/ running on h1; cold error h1> giveback", "reset",
		"error/ running on h1; cold error h1> giveback", "idle", ""},
	{"active/ running on h2; cold confirming h1>h2", "stop",
		"active/powering-off running on h2; cold confirming h1>h2", "left (confirming)", "shutdown"},
}

// conflicts reports whether a refusal is a conflict for the compute API: of a decision about a
// migration that there is.
func conflicts(event, why string) bool {
	kind, _, _ := strings.Cut(event, " ")
	return slices.Contains([]string{"confirm", "revert", "given-back"}, kind) && !strings.HasPrefix(why, "there is no ")
}

// TestMigrationTransitions: what becomes of each server that moves, and what its hosts then have to
// do.
func TestMigrationTransitions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range slices.Concat(
		beginnings, destinations, hostReports, decisions, returns, aborts, deletions,
	) {
		t.Run(c.from+", "+c.event, func(t *testing.T) {
			r, was := moving(c.from), moving(c.from)
			testproc.Equal(t, movingText(r), c.from, "the server is written as %q")
			changed, refused := happens(r, c.event)
			why, refuses := strings.CutPrefix(c.to, "refused: ")
			switch {
			case refuses && (changed || refused == "" || !strings.Contains(refused, why)):
				t.Errorf("changed %v, refused %q, want a refusal with %q", changed, refused, why)
			case refuses && conflicts(c.event, why) && !strings.HasSuffix(refused, "(409 conflict)"):
				t.Errorf("refused %q, want a conflict", refused)
			case !refuses && refused != "":
				t.Errorf("refused: %s", refused)
			case refuses || c.to == "same":
				testproc.Equal(t, changed, false, "changed is %v")
				testproc.Samef(t, cmp.Diff(was, r), "what should not change")
			default:
				testproc.Equal(t, changed, true, "changed is %v")
				testproc.Equal(t, movingText(r), c.to, "it becomes %q")
			}
			testproc.Equal(t, wantText(r, "h1"), c.h1, "h1 has to have it %q")
			testproc.Equal(t, wantText(r, "h2"), c.h2, "h2 has to have it %q")
			for i, m := range r.Migrations {
				differs := i >= len(was.Migrations) || was.Migrations[i].Open != m.Open ||
					!cmp.Equal(was.Migrations[i].Migration, m.Migration)
				if differs && !m.Changed {
					t.Errorf("migration %d is not written: %+v", i, m)
				}
			}
		})
	}
}
