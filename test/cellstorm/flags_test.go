// SPDX-License-Identifier: Apache-2.0

package cellstorm

import "flag"

var (
	stormTime    = flag.Duration("storm.time", 0, "how long a storm lasts; 0: 6s, and 2m in make nightly")
	stormLibvirt = flag.Int("storm.libvirt", 0, "in how many of the three cells libvirt makes the guests")
	stormAPIs    = flag.Int("storm.apis", 3, "how many compute APIs share a database")
	keepFiles    = flag.Bool("storm.keep", false, "keep the files of a test that failed")
	shownLog     = flag.Int("storm.log", 60, "how many lines of each log are shown when a test failed")
)
