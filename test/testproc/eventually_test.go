// SPDX-License-Identifier: Apache-2.0

package testproc_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// fatal is a test that ends where it fails, and keeps the message.
type fatal struct {
	testing.TB
	text string
}

func (*fatal) Helper() {}

func (f *fatal) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestEventually: a wait ends when nothing changes for its time, or after ten times of it; it goes
// on while its error changes.
func TestEventually(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after time.Duration // when the condition holds
		step  time.Duration // when its error changes
		want  string        // the failure
		ends  time.Duration
	}{
		"in time":          {30 * time.Second, time.Hour, "", 30 * time.Second},
		"nothing changes":  {time.Hour, time.Hour, "x: not within 1m30s: step 0", 90 * time.Second},
		"step by step":     {10 * time.Minute, time.Minute, "", 10 * time.Minute},
		"after one step":   {time.Hour, 50 * time.Second, "x: not within 2m20s: step 1", 140 * time.Second},
		"it changes often": {time.Hour, time.Second, "", 15*time.Minute + 90*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, begin, ended := &fatal{TB: t}, time.Now(), make(chan struct{})
				go func() {
					defer close(ended)
					testproc.Eventually(f, 90*time.Second, "x", func() error {
						if time.Since(begin) >= c.after {
							return nil
						}
						step := int(time.Since(begin) / c.step)
						if name == "after one step" {
							step = min(step, 1)
						}
						return errors.New(fmt.Sprint("step ", step))
					})
				}()
				<-ended
				took := time.Since(begin)
				if (c.want != "" || c.after < time.Hour) &&
					f.text != c.want || took < c.ends-2*time.Second || took > c.ends+2*time.Second {
					t.Errorf("it ended after %v with %q, want %v and %q", took, f.text, c.ends, c.want)
				}
				if c.after == time.Hour && f.text == "" {
					t.Error("it did not fail")
				}
			})
		})
	}
}
