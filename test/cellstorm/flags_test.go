// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"flag"
	"time"
)

var (
	stormTime     = flag.Duration("storm.time", 20*time.Second, "how long a storm lasts")
	stormSeed     = flag.Uint64("storm.seed", 0, "the seed of a storm; 0: a new one, which is printed")
	stormLibvirt  = flag.Int("storm.libvirt", 0, "in how many of the three cells libvirt makes the guests")
	stormDatabase = flag.String("storm.database", "mariadb", "the engine that several compute APIs share: mariadb or postgresql")
	stormAPIs     = flag.Int("storm.apis", 3, "how many compute APIs share a database")
	keepFiles     = flag.Bool("storm.keep", false, "keep the files of a test that failed")
	shownLog      = flag.Int("storm.log", 60, "how many lines of each log are shown when a test failed")
)
