// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Exchange is one request with what both services answered.
type Exchange struct {
	Step       Step
	Request    Request
	Real, Ours Answer
	// Differences are those that no exception allows, and Meant those that one does.
	Differences []Difference
	Meant       []*Exception
	// Before and After are what was used of everything in ours, around a write of allocations.
	Before, After usage
	// newer are the standard traits and classes that only ours has.
	newer map[string]bool
	// random says that each service drew a uuid of its own for a new provider.
	random bool
	// sharing are the providers that share, and whether each is a child, where the real service
	// answered 500.
	sharing map[string]bool
}

// diverged says that the services do not hold the same any more.
func (x *Exchange) diverged() bool {
	for _, e := range x.Meant {
		if e.Diverges {
			return true
		}
	}
	return x.random || len(x.Differences) > 0 && x.Step.Method != http.MethodGet
}

// usage is what is used and what there is, by provider and class.
type usage map[[2]string]struct{ Used, Capacity int64 }

// runner sends the steps of one world after the other to two services.
type runner struct {
	real, ours Service
	// epochs count how often the consumer of a slot was given up, see renew.
	epochs []int
	// newer are the standard traits and classes that only ours has.
	newer map[string]bool
}

// learn finds the standard names that only one of the services has.
func (r *runner) learn(ctx context.Context) error {
	r.newer = map[string]bool{}
	for _, path := range []string{"/traits", "/resource_classes"} {
		list := latest("", http.MethodGet, path, nil)
		real, err := r.ask(ctx, r.real, &list)
		if err != nil {
			return err
		}
		ours, err := r.ask(ctx, r.ours, &list)
		if err != nil {
			return err
		}
		known := map[string]bool{}
		for _, name := range namesOf(real.Body) {
			known[name] = true
		}
		for _, name := range namesOf(ours.Body) {
			if !known[name] {
				r.newer[name] = true
			}
		}
	}
	return nil
}

// namesOf are the names in a list of traits or resource classes.
func namesOf(body string) []string {
	var decoded struct {
		Traits  []string `json:"traits"`
		Classes []struct {
			Name string `json:"name"`
		} `json:"resource_classes"`
	}
	if json.Unmarshal([]byte(body), &decoded) != nil {
		return nil
	}
	for _, class := range decoded.Classes {
		decoded.Traits = append(decoded.Traits, class.Name)
	}
	return decoded.Traits
}

func (r *runner) reset(ctx context.Context) error {
	r.epochs = make([]int, consumerMax)
	if err := r.real.Reset(ctx); err != nil {
		return err
	}
	return r.ours.Reset(ctx)
}

// consumer returns the present consumer of a slot.
func (r *runner) consumer(slot int) string {
	if slot >= len(r.epochs) {
		return nowhere
	}
	return uuidOf(1, r.epochs[slot]*16+slot)
}

func (r *runner) generation(ctx context.Context, uuid string) (int64, error) {
	var decoded struct {
		Generation int64 `json:"generation"`
	}
	err := r.look(ctx, "/resource_providers/"+uuid, &decoded)
	return decoded.Generation, err
}

func (r *runner) consumerGeneration(ctx context.Context, uuid string) (int64, error) {
	var decoded struct {
		Generation *int64 `json:"consumer_generation"`
	}
	err := r.look(ctx, "/allocations/"+uuid, &decoded)
	if decoded.Generation == nil {
		return -1, err
	}
	return *decoded.Generation, err
}

// look reads something of our own service; what is not there leaves the value as it is.
func (r *runner) look(ctx context.Context, path string, into any) error {
	get := latest("", http.MethodGet, path, nil)
	answer, err := r.ask(ctx, r.ours, &get)
	if err != nil || answer.Status != http.StatusOK {
		return err
	}
	if err := json.Unmarshal([]byte(answer.Body), into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func (r *runner) ask(ctx context.Context, s Service, st *Step) (Answer, error) {
	request, err := st.render(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	return s.Do(ctx, request)
}

// send sends one step to both and compares the answers.
func (r *runner) send(ctx context.Context, st *Step) (*Exchange, error) {
	request, err := st.render(ctx, r)
	if err != nil {
		return nil, err
	}
	x := &Exchange{Step: *st, Request: request, newer: r.newer}
	claims := st.HasBody && (strings.HasPrefix(st.Path, "/allocations") || st.Path == "/reshaper")
	var held map[string]bool
	if claims {
		if x.Before, err = r.usage(ctx); err == nil {
			held, err = r.holding(ctx, &request)
		}
		if err != nil {
			return nil, err
		}
	}
	if x.Ours, err = r.ours.Do(ctx, request); err != nil {
		return nil, err
	}
	if x.Real, err = r.real.Do(ctx, request); err != nil {
		return nil, err
	}
	x.hideRandom()
	var found []Difference
	if isCandidates := st.Path == "/allocation_candidates" && st.Method == http.MethodGet; isCandidates &&
		x.Real.Status == http.StatusOK && x.Ours.Status == http.StatusOK {
		found, err = r.compareCandidates(ctx, x)
	} else {
		if found = compare(x.Real, x.Ours, st.Method); isCandidates && x.Real.Status == http.StatusInternalServerError {
			x.sharing, err = r.sharing(ctx)
		}
	}
	if err == nil && claims {
		if x.After, err = r.usage(ctx); err == nil {
			err = r.renew(ctx, x, held)
		}
	}
	for _, d := range found {
		if meant := exceptionFor(x, d); meant != nil {
			x.Meant = append(x.Meant, meant)
		} else {
			x.Differences = append(x.Differences, d)
		}
	}
	return x, err
}

// hideRandom removes the uuid that a service drew for a new provider from its answer.
func (x *Exchange) hideRandom() {
	var body object
	if x.Step.Method != http.MethodPost || x.Step.Path != "/resource_providers" ||
		x.Real.Status >= 300 || x.Ours.Status >= 300 ||
		json.Unmarshal([]byte(x.Request.Body), &body) != nil {
		return
	}
	if _, given := body["uuid"]; given {
		return
	}
	x.random = true
	for _, a := range []*Answer{&x.Real, &x.Ours} {
		location := a.Header.Get("Location")
		drawn := location[strings.LastIndexByte(location, '/')+1:]
		if anyUUID.FindString(drawn) == drawn && drawn != "" {
			a.Header.Set("Location", strings.ReplaceAll(location, drawn, nowhere))
			a.Body = strings.ReplaceAll(a.Body, drawn, nowhere)
		}
	}
}

// holding says of the consumers that a request names whether they hold something.
func (r *runner) holding(ctx context.Context, request *Request) (map[string]bool, error) {
	held := map[string]bool{}
	for slot := range r.epochs {
		uuid := r.consumer(slot)
		if strings.Contains(request.Target, uuid) || strings.Contains(request.Body, uuid) {
			generation, err := r.consumerGeneration(ctx, uuid)
			if err != nil {
				return nil, err
			}
			held[uuid] = generation >= 0
		}
	}
	return held, nil
}

// renew gives up the consumers that a write left without allocations and that had none before: the
// real Placement may have kept a record of them, whose generation no request can read. From then on
// their slots stand for other consumers.
func (r *runner) renew(ctx context.Context, x *Exchange, held map[string]bool) error {
	now, err := r.holding(ctx, &x.Request)
	if err != nil {
		return err
	}
	for slot := range r.epochs {
		uuid := r.consumer(slot)
		if before, named := held[uuid]; named && !before && !now[uuid] {
			r.epochs[slot]++
		}
	}
	return nil
}

// usage reads what our service says is used, of each provider.
func (r *runner) usage(ctx context.Context) (usage, error) {
	var list struct {
		Providers []struct {
			UUID string `json:"uuid"`
		} `json:"resource_providers"`
	}
	if err := r.look(ctx, "/resource_providers", &list); err != nil {
		return nil, err
	}
	all := usage{}
	for _, p := range list.Providers {
		var used struct {
			Usages map[string]int64 `json:"usages"`
		}
		var has struct {
			Inventories map[string]struct {
				Total    int64   `json:"total"`
				Reserved int64   `json:"reserved"`
				Ratio    float64 `json:"allocation_ratio"`
			} `json:"inventories"`
		}
		path := "/resource_providers/" + p.UUID
		if err := r.look(ctx, path+"/usages", &used); err != nil {
			return nil, err
		}
		if err := r.look(ctx, path+"/inventories", &has); err != nil {
			return nil, err
		}
		for class, inv := range has.Inventories {
			one := all[[2]string{p.UUID, class}]
			one.Used, one.Capacity = used.Usages[class], int64(float64(inv.Total-inv.Reserved)*inv.Ratio)
			all[[2]string{p.UUID, class}] = one
		}
	}
	return all, nil
}
