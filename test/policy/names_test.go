// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// unclearNames are words that do not say what a function or method does, in lower case, and better
// ones. A name in which such a word is one of several is free.
var unclearNames = map[string]string{
	"able":     "checkAbility: check what",
	"about":    "the noun that it returns",
	"act":      "apply, reconcile, recordChange",
	"admitted": "the noun that it returns",
	"again":    "shouldRetry, checkRepeatedInsert",
	"agree":    "acquire, negotiate",
	"ahead":    "fromWrongClock, buffered: ahead of what",
	"alike":    "equal, matchingParts",
	"alone":    "serialize, exclusive, tryLocked",
	"apart":    "isolated, split",
	"as":       "forUser, withRole",
	"assume":   "setIdentity, assumesNewest: assume what",
	"bad":      "addProblem, badValue",
	"became":   "setState",
	"become":   "setState, actAs",
	"begun":    "firstPage, started",
	"beside":   "the noun that it returns",
	"came":     "withArrival",
	"cannot":   "lacksTrait, isImpossible",
	"carry":    "copy",
	"chosen":   "the noun that it returns",
	"conclude": "appendCause",
	"cover":    "hide, redact",
	"destine":  "setDestination",
	"did":      "setChange",
	"distrust": "closeIdle",
	"echo":     "the headers or bytes that it writes",
	"either":   "checkOneOf",
	"enlist":   "setState, add",
	"every":    "all, loop",
	"fine":     "pass",
	"follows":  "the condition that it tests",
	"freed":    "markFreed",
	"give":     "assign, dispatch, deliver, release",
	"going":    "placesLeft: what goes",
	"govern":   "specOf",
	"grown":    "resized",
	"halfway":  "the state that it tests",
	"happen":   "run",
	"happened": "onEvent",
	"here":     "find, exists",
	"judge":    "check, evaluate, compare",
	"invented": "hasTestDriver",
	"judged":   "checked, decided",
	"keeps":    "the condition that it tests",
	"kept":     "stored, retained",
	"know":     "set",
	"lack":     "missing",
	"lay":      "apply",
	"learn":    "load, observe",
	"lives":    "the condition that it tests",
	"look":     "probe, refresh, stat, discover",
	"made":     "created",
	"mapped":   "markMapped",
	"may":      "allows, checkHost: may what",
	"meant":    "check",
	"meet":     "add",
	"meets":    "conditionsMet",
	"mine":     "ownedBy",
	"more":     "double, increase",
	"noted":    "recorded, reserved",
	"of":       "the noun that it returns",
	"ours":     "managed, isOwn",
	"over":     "isOver, ended",
	"past":     "recordSpan",
	"pay":      "spend, charge",
	"personal": "the condition that it tests",
	"polls":    "beginPoll",
	"prove":    "the value that it updates",
	"raise":    "nextRevision, raiseTerm: raise what",
	"ran":      "hasRun",
	"recall":   "load",
	"remember": "save, record, cache",
	"retreat":  "backtrack",
	"roll":     "startChunk, rotate",
	"rooted":   "the condition that it tests",
	"saw":      "record",
	"see":      "observe",
	"settle":   "reconcile, choose, update",
	"settled":  "applySettled, ignoreIfReached",
	"shelter":  "keepBelowRoot",
	"sift":     "filter",
	"soon":     "the threshold that it returns",
	"spoil":    "applyFault",
	"stand":    "classify",
	"standing": "lookupNode, status",
	"stands":   "hasOwnProvider: stands where",
	"stay":     "end",
	"stayed":   "the state that it tests",
	"stays":    "the condition that it tests",
	"still":    "recheck",
	"stir":     "notify",
	"strange":  "the condition that it tests",
	"stray":    "noteUnlocated",
	"succeed":  "takeOver",
	"survived": "onSharedStorage",
	"tell":     "notify, report, log",
	"to":       "setState",
	"took":     "accept",
	"truly":    "the noun that it returns",
	"turn":     "switch, set",
	"usual":    "default, least",
	"vacant":   "checkVacant",
	"wants":    "setDesired",
	"where":    "the noun that it returns",
	"whose":    "checkOwner",
	"withheld": "whyUnreadable",
	"word":     "report",
	"words":    "text",
	"wrote":    "afterWrite",
}

// unclearIdentifiers are words that do not say what a variable, a field or a type is.
var unclearIdentifiers = map[string]string{
	"gift":     "assignment",
	"rung":     "notified, changed",
	"told":     "logged, received, reported",
	"troubles": "problems",
}

// TestFunctionNames: a function or method of the product is named by what it does or returns, and
// not by a word that only its author understands. Nor is anything else named by some such words.
func TestFunctionNames(t *testing.T) {
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") || generated(name) {
			continue
		}
		set := token.NewFileSet()
		file := testproc.Try(parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)).Or(t)
		check := func(id *ast.Ident) {
			first := []rune(id.Name)
			first[0] = unicode.ToLower(first[0])
			if better := unclearNames[string(first)]; better != "" {
				t.Errorf("%s:%d: %s says nothing to a newcomer; name what it does or returns (%s)",
					name, set.Position(id.Pos()).Line, id.Name, better)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				check(n.Name)
			case *ast.Ident:
				if better := unclearIdentifiers[n.Name]; better != "" {
					t.Errorf("%s:%d: %s says nothing to a newcomer; name what it is (%s)",
						name, set.Position(n.Pos()).Line, n.Name, better)
				}
			case *ast.InterfaceType:
				for _, method := range n.Methods.List {
					for _, id := range method.Names {
						check(id)
					}
				}
			}
			return true
		})
	}
}
