// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/providertree"
)

// SecurityTraits is the prefix of the COMPUTE_ traits that have a kind, unlike the others: servers
// with secrets require them.
const SecurityTraits = "COMPUTE_SECURITY"

// KindlessTraits returns the prefixes of the traits that say what software can do and how a
// provider is used. Upgrades and new layouts add such traits, so that a host may report them at any
// time.
func KindlessTraits() []string {
	return []string{"COMPUTE_", "OWNER_NOVA", "MISC_", "HW_NUMA_", "CUSTOM_COMPUTE_AGENT_"}
}

// TraitKind returns the kind of a trait, by which the trait is admitted to a host: its first two
// words, such as HW_GPU of HW_GPU_API_VULKAN or CUSTOM_GOLD of CUSTOM_GOLD_2. It is "" for
// [KindlessTraits] that are not [SecurityTraits].
func TraitKind(trait string) string {
	for _, prefix := range KindlessTraits() {
		if strings.HasPrefix(trait, prefix) && !strings.HasPrefix(trait, SecurityTraits) {
			return ""
		}
	}
	words := strings.SplitN(trait, "_", 3)
	return strings.Join(words[:min(2, len(words))], "_")
}

// HostAdmission is what a host may report of itself, as GET and POST /hosts/{host}/admission
// answer. OpenStack's Placement has no hosts.
type HostAdmission struct {
	Host string `json:"host"`
	// Since is when the host began to report; nil if it has not, or if that is not known.
	Since *time.Time `json:"since"`
	// Until is the end of the time in which everything that the host reports is admitted; nil if
	// that time is over.
	Until *time.Time `json:"until"`
	// Classes are amounts, total times allocation_ratio, by resource class; the host may report
	// Factor times as much. A factor of 0 is no bound.
	Classes map[string]int64 `json:"classes"`
	Factor  int              `json:"factor"`
	// Traits are the first two words of the traits that it may report.
	Traits []string `json:"traits"`
}

// AdmissionChange is what an operator states of a host, the body of POST /hosts/{host}/admission.
type AdmissionChange struct {
	// Classes are the admitted amounts of some classes; those of other classes stay.
	Classes map[string]int64 `json:"classes,omitempty"`
	// Traits are traits whose kinds are admitted.
	Traits []string `json:"traits,omitempty"`
	// Window admits all that the host reports from now on, as when it came.
	Window bool `json:"window,omitempty"`
}

// DecodeAdmissionChange reads the body of POST /hosts/{host}/admission. The error is a
// *jsonkit.Error.
func DecodeAdmissionChange(body []byte) (a AdmissionChange, err error) {
	r := newReader(body)
	err = r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "classes":
			a.Classes = map[string]int64{}
			err = r.Object(func(key []byte) error {
				class := string(key)
				if !providertree.IsSymbol(class) {
					return r.Unknown()
				}
				amount, err := r.Integer(0, jsonkit.MaxExact)
				a.Classes[class] = amount
				return err
			})
		case "traits":
			err = r.Array(func(int) error {
				name, err := r.String(1, MaxName)
				if err == nil && !providertree.IsSymbol(name) {
					err = r.Invalid("is not the name of a trait")
				}
				a.Traits = append(a.Traits, name)
				return err
			})
		case "window":
			var value any
			if value, err = r.Value(); err == nil {
				var is bool
				if a.Window, is = value.(bool); !is {
					err = r.Invalid("must be true or false")
				}
			}
		default:
			err = r.Unknown()
		}
		return err
	})
	if err == nil {
		err = r.End()
	}
	return a, err
}
