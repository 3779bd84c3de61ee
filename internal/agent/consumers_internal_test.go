// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestConsumersAreWhatIsKnown: what a consumer is called follows from the drivers' lists and the
// servers of the cell; where a list is missing, nothing is called no guest.
func TestConsumersAreWhatIsKnown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	x := guestIndex{
		guests: map[string]listedGuest{"here": {plugins.Guest{UUID: "here", Name: "i-1"}, "cn1"},
			"there": {plugins.Guest{UUID: "there", Name: "i-2"}, "cn2"}},
		names: map[string]string{"here": "web", "building": "db"},
	}
	want := map[string]control.Consumer{
		"here":     {UUID: "here", Kind: control.KindGuest, Name: "web", Guest: "i-1"},
		"there":    {UUID: "there", Kind: control.KindElsewhere, Guest: "i-2", GuestOf: "cn2"},
		"building": {UUID: "building", Kind: control.KindServer, Name: "db"},
		"else":     {UUID: "else", Kind: control.KindOther},
	}
	for uuid, c := range want {
		testproc.Same(t, cmp.Diff(c, x.consumer("cn1", uuid)))
	}
	x.failed = map[string]string{"cn2": "no process"}
	for uuid, kind := range map[string]control.ConsumerKind{"here": control.KindGuest, "there": control.KindElsewhere,
		"building": control.KindUnchecked, "else": control.KindUnchecked} {
		testproc.Equal(t, x.consumer("cn1", uuid).Kind, kind, "with a driver that is down, %s is %s", uuid)
	}
	providers := []control.Provider{{Consumers: []control.Consumer{{UUID: "else"}}},
		{Consumers: []control.Consumer{{UUID: "there"}}}}
	if diff := cmp.Diff([]control.Consumer{want["here"]}, x.withoutAllocations("cn1", providers)); diff != "" {
		t.Errorf("guests without allocations (-want +got):\n%s", diff)
	}
	if got := x.withoutAllocations("cn2", providers); got != nil {
		t.Errorf("guests without allocations: %+v", got)
	}
	var sorted []control.Consumer
	for _, c := range want {
		sorted = append(sorted, c)
	}
	slices.SortFunc(sorted, control.Consumer.Compare)
	var order []string
	for _, c := range sorted {
		order = append(order, c.UUID)
	}
	testproc.Samef(t, cmp.Diff([]string{"here", "there", "building", "else"}, order), "order")
}

// typesOf says the types of consumers, until an error.
type typesOf struct {
	asked []string
	err   error
}

func (t *typesOf) ConsumerType(_ context.Context, uuid string) (string, error) {
	t.asked = append(t.asked, uuid)
	return "type of " + uuid, t.err
}

// TestConsumerTypesAreRead: once for each consumer that is no guest and holds something that is not
// shared, at most 100 of them, and no more after an error.
func TestConsumerTypesAreRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	of := func(uuids ...string) (list []control.Consumer) {
		for _, uuid := range uuids {
			list = append(list, control.Consumer{UUID: uuid, Kind: control.KindOther})
		}
		return list
	}
	guest := control.Consumer{UUID: "guest", Kind: control.KindGuest}
	providers := []control.Provider{
		{Consumers: append(of("a"), guest)}, {Consumers: of("a", "b")},
		{Traits: []string{providertree.TraitSharesViaAggregate}, Consumers: of("c")},
	}
	var placement typesOf
	addTypes(t.Context(), &placement, providers)
	if !slices.Equal(placement.asked, []string{"a", "b"}) || providers[1].Consumers[0].Type != "type of a" ||
		providers[0].Consumers[1].Type != "" {
		t.Errorf("asked for %q: %+v", placement.asked, providers)
	}
	many := make([]string, 150)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	placement = typesOf{}
	addTypes(t.Context(), &placement, []control.Provider{{Consumers: of(many...)}})
	if len(placement.asked) != maxTyped {
		t.Errorf("asked for %d of 150, want %d", len(placement.asked), maxTyped)
	}
	placement = typesOf{err: errors.New("too old")}
	providers = []control.Provider{{Consumers: of(many...)}}
	addTypes(t.Context(), &placement, providers)
	if len(placement.asked) != 1 || providers[0].Consumers[0].Type != "" {
		t.Errorf("after an error, asked for %d", len(placement.asked))
	}
}
