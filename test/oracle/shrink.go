// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

var anyUUID = regexp.MustCompile(`\{?[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?|\{\{c\d+\}\}`)

// signature is the same for differences that are likely one and the same fault.
func (x *Exchange) signature() string {
	parts := []string{x.Step.Method, anyUUID.ReplaceAllString(strings.SplitN(x.Request.Target, "?", 2)[0], "*")}
	for _, d := range x.Differences {
		parts = append(parts, d.What)
		if d.What == "status" || strings.HasPrefix(d.What, "error") {
			parts = append(parts, d.Real, d.Ours)
		}
	}
	return strings.Join(parts, " ")
}

// shrinker looks for a short script with the same difference in its last step.
type shrinker struct {
	r         *runner
	signature string
	// left is how many requests may still be sent in search of it.
	left int
	best []Step
	// last is the exchange of the last step of best.
	last *Exchange
}

// shrink makes a script shorter as long as its last step ends in a difference of the same
// signature, by sending parts of it to empty services. It sends about so many requests at most.
// refused says of steps that they changed nothing the first time.
func (r *runner) shrink(
	ctx context.Context, steps []Step, refused []bool, x *Exchange, requests int,
) ([]Step, *Exchange, error) {
	s := &shrinker{r: r, signature: x.signature(), left: requests, best: steps, last: x}
	// What was only read, and what was refused, hardly matters.
	last := len(steps) - 1
	for _, dull := range []func(i int) bool{
		func(i int) bool { return steps[i].Method == http.MethodGet || i < len(refused) && refused[i] },
		func(i int) bool { return steps[i].Method == http.MethodGet },
	} {
		var kept []Step
		for i := range steps {
			if i == last || !dull(i) {
				kept = append(kept, steps[i])
			}
		}
		if shorter, err := s.try(ctx, kept); err != nil || shorter {
			if err != nil {
				return s.best, s.last, err
			}
			break
		}
	}
	if err := s.drop(ctx); err != nil {
		return s.best, s.last, err
	}
	if err := s.simplify(ctx); err != nil {
		return s.best, s.last, err
	}
	err := s.drop(ctx)
	return s.best, s.last, err
}

// try runs a script on empty services, and keeps it when it ends in the same difference.
func (s *shrinker) try(ctx context.Context, steps []Step) (bool, error) {
	if s.left < len(steps) {
		return false, nil
	}
	if err := s.r.reset(ctx); err != nil {
		return false, err
	}
	for i := range steps {
		x, err := s.r.send(ctx, &steps[i])
		if err != nil {
			return false, err
		}
		s.left--
		if i == len(steps)-1 {
			if len(x.Differences) > 0 && x.signature() == s.signature {
				s.best, s.last = steps, x
				return true, nil
			}
		} else if x.diverged() {
			return false, nil
		}
	}
	return false, nil
}

// drop leaves steps out: first many at once, then fewer.
func (s *shrinker) drop(ctx context.Context) error {
	for size := max(len(s.best)/2, 1); size >= 1; size /= 2 {
		for from := len(s.best) - 1 - size; from > -size; from -= size {
			lo, hi := max(from, 0), from+size
			if hi > len(s.best)-1 {
				continue
			}
			if _, err := s.try(ctx, slices.Concat(s.best[:lo], s.best[hi:])); err != nil {
				return err
			}
		}
	}
	return nil
}

// simplify makes the steps themselves smaller, from the last to the first.
func (s *shrinker) simplify(ctx context.Context) error {
	for i := len(s.best) - 1; i >= 0; i-- {
		for again := true; again; {
			again = false
			for _, smaller := range smallerSteps(&s.best[i]) {
				kept, err := s.try(ctx, slices.Concat(s.best[:i], []Step{smaller}, s.best[i+1:]))
				if err != nil {
					return err
				}
				if again = again || kept; kept {
					break
				}
			}
		}
	}
	return nil
}

// smallerSteps are the steps that have one thing less.
func smallerSteps(st *Step) []Step {
	var all []Step
	for i := range st.Query {
		c := st.clone()
		c.Query = slices.Delete(c.Query, i, i+1)
		all = append(all, c)
	}
	for i, p := range st.Query {
		if strings.Contains(p.Value, ",") && !p.Raw {
			parts := strings.Split(p.Value, ",")
			for k := range parts {
				c := st.clone()
				c.Query[i].Value = strings.Join(slices.Delete(slices.Clone(parts), k, k+1), ",")
				all = append(all, c)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(st.Header)) {
		c := st.clone()
		delete(c.Header, name)
		all = append(all, c)
	}
	var body any
	if st.HasBody && json.Unmarshal([]byte(st.Body), &body) == nil {
		for _, smaller := range smallerValues(body) {
			c := st.clone()
			c.Body = text(smaller)
			all = append(all, c)
		}
	}
	return all
}

// smallerValues are the JSON values that have one key or element less, anywhere.
func smallerValues(v any) []any {
	var all []any
	switch v := v.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			c := maps.Clone(v)
			delete(c, key)
			all = append(all, c)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			for _, smaller := range smallerValues(v[key]) {
				c := maps.Clone(v)
				c[key] = smaller
				all = append(all, c)
			}
		}
	case []any:
		for i := range v {
			all = append(all, slices.Delete(slices.Clone(v), i, i+1))
		}
		for i := range v {
			for _, smaller := range smallerValues(v[i]) {
				c := slices.Clone(v)
				c[i] = smaller
				all = append(all, c)
			}
		}
	}
	return all
}

// shrinkFor is how long one search may take at most.
const shrinkFor = 3 * time.Minute
