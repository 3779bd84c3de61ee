// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestReleasedStepsStayAsTheyAre: what an engine gets of a step of a schema is what it got when the
// step was released, byte for byte: databases that had it are not changed by a later edit.
func TestReleasedStepsStayAsTheyAre(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const file = "testdata/released-steps"
	var now strings.Builder
	texts := map[string]string{}
	for _, of := range []struct {
		name   string
		schema *sqldb.Schema
	}{
		{"placement/store", store.DatabaseOptions().Schema},
		{"cells/apidb", apidb.DatabaseOptions().Schema},
		{"cells/celldb", celldb.DatabaseOptions().Schema},
	} {
		for _, d := range []*engine.Dialect{engine.SQLite, engine.MySQL, engine.PostgreSQL} {
			steps, err := sqldb.Statements(of.schema, d)
			must(t, err)
			for i, statements := range steps {
				text := strings.Join(statements, ";\n")
				line := fmt.Sprintf("%s %04d %s %x\n", of.name, i+1, d.Name, sha256.Sum256([]byte(text)))
				now.WriteString(line)
				texts[line] = text
			}
		}
	}
	known := string(testproc.Try(os.ReadFile(file)).Or(t))
	for line := range strings.Lines(now.String()) {
		if !strings.Contains(known, line) {
			t.Errorf("%s lacks the line\n"+
				"%sA released step never changes: undo that, and add a "+
				"step. A new step needs the line. The engine gets:\n"+
				"%s", file, line, texts[line])
		}
	}
	for line := range strings.Lines(known) {
		if !strings.Contains(now.String(), line) {
			t.Errorf("%s has a line of no step: %s", file, line)
		}
	}
}
