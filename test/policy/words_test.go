// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// maxComment is how many columns a comment line has at most. A tab counts as four.
const maxComment = 100

// words maps a word or a phrase to what to write instead. A reader knows the words of Placement,
// Nova, Kubernetes, etcd and systemd, and should not have to learn others. Identifiers are split
// at their capitals, so "stands twice" is found in standsTwice, too. A word that also has an
// ordinary meaning is listed only in phrases.
var words = map[string]string{
	// Packages, layers, capacity.
	"house":           "package, layer, environment",
	"houses":          "packages, layers, environments",
	"rooms":           "packages, layers; available",
	"the room":        "the package; available, free",
	"this room":       "this package",
	"no room":         "no capacity, full",
	"room for":        "capacity for, space for",
	"room left":       "available, free",
	"free room":       "free capacity",
	"enough room":     "enough capacity",
	"has room":        "has capacity",
	"most room":       "the largest free amount",
	"have room":       "have capacity",
	"make room":       "free capacity",
	"makes room":      "frees capacity",
	"the walls":       "import rules",
	"shaper":          "layout",
	"shapers":         "layouts",
	"numbered shape":  "layout version",
	"numbered shapes": "layout versions",
	"shape version":   "layout version",
	"shape versions":  "layout versions",
	"a shape":         "a layout",
	"the shape":       "the layout",
	"the shapes":      "the layouts",
	"old shape":       "old layout",
	"new shape":       "new layout",
	"present shape":   "present layout",
	"stock":           "inventory",
	"stocks":          "inventories",

	// State and concurrency.
	"what is to be": "desired state",
	"what shall be": "desired state",
	"what is so":    "actual state",
	"its turn":      "in order, when it is next",
	"knock":         "TCP probe",
	"knocks":        "TCP probes",
	"knocked":       "probed",
	"knocking":      "probing",
	"seat":          "active instance, slot",
	"seats":         "active instances, slots",
	"bell":          "broadcast",
	"bells":         "broadcasts",
	"pulse":         "heartbeat",
	"strand":        "abandon",
	"strands":       "abandons",
	"stranded":      "abandoned",
	"setback":       "failure",
	"setbacks":      "failures",
	"scout":         "probe",
	"scouts":        "probes",
	"roster":        "list",
	"news":          "event, change",
	"survey":        "discovery, summary",
	"surveys":       "discoveries, summaries",
	"surveyed":      "discovered, listed",
	"tour":          "iteration",
	"actor":         "provider",
	"actors":        "providers",
	"spared":        "circuit breaker open",
	"retire":        "drain",
	"retires":       "drains",
	"retired":       "drained",
	"retiring":      "draining",
	"stranger":      "external, unmanaged",
	"strangers":     "external, unmanaged",

	// Errors and health.
	"doubt":        "discrepancy",
	"doubts":       "discrepancies",
	"deed":         "fault",
	"deeds":        "faults",
	"misdeed":      "fault",
	"misdeeds":     "faults",
	"misbehave":    "fail, be faulty",
	"misbehaves":   "fails, is faulty",
	"misbehaved":   "failed, was faulty",
	"misbehaving":  "faulty",
	"misbehaviour": "fault",
	"misbehavior":  "fault",
	"offender":     "violation",
	"offenders":    "violations",
	"objection":    "violation",
	"objections":   "violations",
	"blame":        "violation",
	"blames":       "reports",
	"blamed":       "reported",
	"remedy":       "hint, fix",
	"remedies":     "hints, fixes",
	"mend":         "fix",
	"mends":        "fixes",
	"mended":       "fixed",
	"mending":      "fixing",
	"stands twice": "is a duplicate",
	"stand twice":  "are duplicates",
	"twin":         "duplicate, counterpart",
	"twins":        "duplicates, counterparts",
	"in vain":      "without success; fails",

	// Who says what to whom.
	"was told":     "received, was logged",
	"were told":    "received, were logged",
	"is told":      "receives, is logged, is reported",
	"are told":     "receive, are logged, are reported",
	"be told":      "receive, be logged, be reported",
	"been told":    "received, been logged, been reported",
	"told once":    "logged once",
	"told at once": "reported together",
	"heard":        "received",
	"presentable":  "printable",
	"tame":         "sanitize",
	"tames":        "sanitizes",
	"tamed":        "sanitized",
	"whoever":      "a client, an operator, another process",
	"nobody":       "no client, no operator, no process",
	"somebody":     "a client, an operator, another process",
	"anybody":      "any client, any process",
	"who asks":     "a client that asks",
	"who asked":    "the client that asked",
	"is said":      "is logged, is reported",
	"are said":     "are logged, are reported",
	"was said":     "was logged, was reported",
	"excerpt":      "snippet",
	"who has":      "a client that has, the process that has",

	// Old-fashioned English.
	"anew":          "again",
	"seldom":        "rarely, rate-limited",
	"dearer":        "more expensive",
	"shall":         "must, is to",
	"is none":       "is invalid, is not one",
	"is none of":    "is not one of, does not belong to",
	"are none of":   "are not among, do not belong to",
	"to see to":     "to handle",
	"sees to":       "handles, ensures",
	"seen to":       "handled, ensured",
	"do without":    "omit, lack",
	"does without":  "omits, lacks",
	"to want for":   "to lack",
	"wants for":     "lacks",
	"is away":       "is down, cannot be reached",
	"are away":      "are down, cannot be reached",
	"was away":      "was down, could not be reached",
	"to be had":     "available",
	"can be had":    "is available",
	"cannot be had": "is unavailable",
	"for ever":      "forever",
}

// frozen are texts that hold a listed word and stay: names on the wire, on disk and in other
// programs, and ordinary English that a listed phrase would match.
var frozen = []string{
	`"remedy"`, `"remedy,omitempty"`, `\"remedy\"`, `"offenders"`, `"offenders,omitempty"`, `\"offenders\"`,
	`"objections"`, `"objections,omitempty"`,
	`\"objections\"`, `"mend"`, `"mend,omitempty"`, `"retiring"`, `"retiring,omitempty"`, `\"retiring\"`,
	`shape_version`, `/v1/survey`, `"nobody"`, `nobody:nogroup`, `REMEDY`, `OFFENDERS`, "`misbehave`", "`spared`",
	"field `remedy`", `inventory-retiring`,
	`driverv1.Offender`, `GetOffenders`, `GetRemedy`, `GetShapeVersion`, `SilenceUsage`, `SilenceErrors`,
	`here is none`, `here was none`, `is None`, `assertIsNone`, "Placement was told", "Doubt about the host",
	"stock go-plugin",
	`.Offenders`, `Offenders:`, `.offenders`, `.Offender(`, `Remedy:`, `.Remedy`, `.ShapeVersion`, `ShapeVersion:`,
}

// textFiles are the files that people read: code, docs, units and what else is source.
func textFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch name := d.Name(); {
		case d.IsDir() && rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" ||
			name == "__pycache__" || rel == "docs/decisions"):
			return filepath.SkipDir // decisions are records of their day
		case d.IsDir() || generated(rel) || strings.HasSuffix(rel, ".proto") || rel == "test/policy/words_test.go":
			return nil // the protocol's names stay
		}
		switch path.Ext(rel) {
		case ".go", ".md", ".toml", ".service", ".socket", ".conf", ".yaml", ".yml", ".sh", ".py", ".tmpl":
			files = append(files, rel)
		default:
			if path.Base(rel) == "Makefile" {
				files = append(files, rel)
			}
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	return files
}

// TestWords: code, comments, messages and docs use words that engineers and operators know.
func TestWords(t *testing.T) {
	replacements := make([]string, 0, 2*len(frozen))
	for _, text := range frozen {
		replacements = append(replacements, text, strings.Repeat("|", len(text)))
	}
	mask := strings.NewReplacer(replacements...)
	dictionary := newDictionary(words)
	for _, name := range textFiles(t) {
		content := testproc.Try(os.ReadFile(filepath.Join(root, name))).Or(t)
		dictionary.search(mask.Replace(string(content)), func(line int, phrase string) {
			t.Errorf("%s:%d: %q: write %q", name, line, phrase, words[phrase])
		})
	}
}

// TestCommentWidth: a comment fits in maxComment columns.
func TestCommentWidth(t *testing.T) {
	for _, name := range slices.Concat(goFiles(t), goTemplates(t)) {
		if generated(name) {
			continue
		}
		content := testproc.Try(os.ReadFile(filepath.Join(root, name))).Or(t)
		number := 0
		for line := range strings.Lines(string(content)) {
			number++
			if len(line) <= maxComment*3/4 {
				continue
			}
			comment := strings.TrimLeft(line, "\t ")
			if !strings.HasPrefix(comment, "// ") && !strings.HasPrefix(comment, "//\t") ||
				strings.Contains(comment, "://") {
				continue // an address cannot be broken
			}
			if width := utf8.RuneCountInString(strings.TrimRight(line, "\n")) +
				3*strings.Count(line, "\t"); width > maxComment {
				t.Errorf("%s:%d: a comment of %d columns; break it at %d", name, number, width, maxComment)
			}
		}
	}
}

// dictionary finds phrases by their first word.
type dictionary map[string][][]string

func newDictionary(phrases map[string]string) dictionary {
	d := dictionary{}
	for phrase := range phrases {
		parts := strings.Split(phrase, " ")
		d[parts[0]] = append(d[parts[0]], parts)
	}
	for _, all := range d { // the longest first
		slices.SortFunc(all, func(a, b []string) int { return len(b) - len(a) })
	}
	return d
}

// search calls hit with the line of each phrase in text. A phrase may go over the end of a line.
func (d dictionary) search(text string, hit func(line int, phrase string)) {
	type word struct {
		text string
		line int
	}
	var all []word
	line := 1
	for i := 0; i < len(text); {
		if !letter(text[i]) {
			switch text[i] {
			case '\n':
				line++
			case ' ', '\t', '\r', '/', '_', '-', '*', '#':
			default: // other signs end a phrase
				all = append(all, word{line: line})
			}
			i++
			continue
		}
		start := i
		for i++; i < len(text) && letter(text[i]); i++ {
			capital := upper(text[i]) // a word begins at fooBar's B and at HTTPServer's S
			if capital && (!upper(text[i-1]) || i+1 < len(text) && letter(text[i+1]) && !upper(text[i+1])) {
				break
			}
		}
		all = append(all, word{strings.ToLower(text[start:i]), line})
	}
	for i := 0; i < len(all); i++ {
	phrases:
		for _, phrase := range d[all[i].text] {
			if i+len(phrase) > len(all) {
				continue
			}
			for k, part := range phrase {
				if all[i+k].text != part {
					continue phrases
				}
			}
			hit(all[i].line, strings.Join(phrase, " "))
			break
		}
	}
}

func letter(c byte) bool { return upper(c) || 'a' <= c && c <= 'z' }

func upper(c byte) bool { return 'A' <= c && c <= 'Z' }

// TestDictionary: phrases are found in prose, over the ends of comment lines and in identifiers.
func TestDictionary(t *testing.T) {
	d := newDictionary(map[string]string{"anew": "", "stands twice": "", "is none": "", "is none of": ""})
	for text, want := range map[string]string{
		"It begins Anew.":                      "1 anew",
		"func standsTwice() { startAnew() }":   "1 stands twice, 1 anew",
		"// A name stands\n// twice.":          "1 stands twice",
		"stands_twice":                         "1 stands twice",
		"It stands. Twice it fell.":            "",
		"renew, HTTPAnew, anewly":              "1 anew",
		"\n\nThis is none of them, it is none": "3 is none of, 3 is none",
	} {
		var got []string
		d.search(text, func(line int, phrase string) { got = append(got, fmt.Sprintf("%d %s", line, phrase)) })
		testproc.Equal(t, strings.Join(got, ", "), want, "%q: %q", text)
	}
}
