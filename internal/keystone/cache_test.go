// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"crypto/sha256"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

func keyOf(n int) key { return key{sum: sha256.Sum256([]byte(strconv.Itoa(n)))} }

// TestCache compares the cache with a list that is searched from end to end.
func TestCache(t *testing.T) {
	type known struct {
		n     int
		who   string
		until time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "most")
		c, model := newCache(most), []known(nil) // the last is the one that was asked for last
		now := time.Unix(0, 0)
		number := rapid.IntRange(0, 7)
		take := func(n int) (k known, ok bool) {
			for i := range model {
				if model[i].n == n {
					k, ok = model[i], true
					model = append(model[:i:i], model[i+1:]...)
					return k, ok
				}
			}
			return k, ok
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n, who, seconds := number.Draw(t, "n"), rapid.StringMatching("[a-z]").Draw(t, "who"),
					rapid.IntRange(0, 5).Draw(t, "seconds")
				until := now.Add(time.Duration(seconds) * time.Second)
				c.put(keyOf(n), osapi.Principal{User: who}, until)
				take(n)
				if model = append(model, known{n, who, until}); len(model) > most {
					model = model[1:]
				}
			},
			"get": func(t *rapid.T) {
				n := number.Draw(t, "n")
				want, ok := take(n)
				if ok = ok && now.Before(want.until); ok {
					model = append(model, want)
				} else {
					want.who = ""
				}
				got, found := c.get(keyOf(n), now)
				if diff := cmp.Diff(want.who, got.User); diff != "" || found != ok {
					t.Fatalf("found %t, want %t (-want +got):\n%s", found, ok, diff)
				}
			},
			"wait": func(*rapid.T) { now = now.Add(time.Second) },
			"": func(t *rapid.T) {
				if c.order.Len() != len(model) || len(c.entries) != len(model) {
					t.Fatalf("%d and %d are remembered, want %d", c.order.Len(), len(c.entries), len(model))
				}
			},
		})
	})
}
