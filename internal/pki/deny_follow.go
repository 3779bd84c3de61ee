// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
)

// DeniedPath is where an enrolment service has the deny list, below its URL.
const DeniedPath = "/v1/denied"

// ErrFollowed is wrapped by errors about a deny list that is a copy.
var ErrFollowed = errors.New("the deny list is fetched from elsewhere")

const (
	followInterval = 15 * time.Second
	// firstInterval replaces followInterval until the first list was fetched.
	firstInterval = time.Second
	// fetchTime bounds one fetch.
	fetchTime = 10 * time.Second
	// firstWait bounds how long a service without a list waits for its first fetch before it
	// serves.
	firstWait = 2 * time.Second
)

// Source is where a deny list is fetched.
type Source struct {
	// URL is the URL of an enrolment service.
	URL string
	// Transport carries the requests.
	Transport http.RoundTripper
	// Interval is how often the list is fetched, less up to a fifth of it; 15 s when zero.
	Interval time.Duration
}

// FollowDenyFile is the list of an enrolment service, which Run fetches, and which path has a copy
// of for the next start. While it cannot be fetched the last one stays, also after a restart. Until
// it is fetched, all hosts are refused if there is no copy, or a damaged one. A file that is no
// such copy and has hosts is an error: they would be forgotten.
func FollowDenyFile(path string, from Source, log zerolog.Logger) (*DenyFile, error) {
	if from.Interval <= 0 {
		from.Interval = followInterval
	}
	w := &follower{
		path: path, from: from, tried: make(chan struct{}),
		log: log.With().Str("url", from.URL).Str("file", path).Logger(),
	}
	w.endFirst = sync.OnceFunc(func() { close(w.tried) })
	f := &DenyFile{follower: w, log: w.log}
	w.fetched.Store(time.Now().UnixNano())
	w.list.Store(&DenyList{unusable: true})
	content, err := files.Read(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("deny list: %w", err)
		}
		w.log.Info().Msg("There is no copy of the deny list yet. All hosts are refused until it is fetched.")
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("deny list: %w", err)
	}
	list, err := ParseDenyList(content.Data, path)
	_, copied := FollowedFrom(content.Data)
	switch {
	case !copied && len(content.Data) > 0 && err != nil:
		return nil, fmt.Errorf("deny list: %w; it is no copy, and would be replaced by the list of %s: "+
			"put its hosts on that list, and remove the file", err, from.URL)
	case !copied && len(list.Denials()) > 0:
		return nil, fmt.Errorf(
			"deny list: %s has %d hosts that were denied there, and would be replaced by the list of %s; put them "+
				"on that list, and remove the file",
			path, len(list.Denials()), from.URL,
		)
	case !copied || err != nil:
		w.log.Error().Err(err).
			Msg("The copy of the deny list cannot be used. All hosts are refused until the list is fetched.")
		return f, nil
	}
	w.list.Store(list)
	switch ahead := time.Until(list.date); {
	case list.date.IsZero(): // a copy without a date
	case ahead > MaxAhead: // it says nothing about its age
		w.fetched.Store(0)
	case ahead < 0:
		w.fetched.Store(list.date.UnixNano())
		w.written = list.date
	}
	return f, nil
}

// Age is the time since the list was fetched last, also by an earlier process, or since this
// process began to try; followed is false for a list that is not fetched.
func (f *DenyFile) Age() (age time.Duration, followed bool) {
	if f == nil || f.follower == nil {
		return 0, false
	}
	return time.Since(time.Unix(0, f.follower.fetched.Load())), true
}

// follower fetches a list, and keeps a copy in a file.
type follower struct {
	path    string
	from    Source
	log     zerolog.Logger
	list    atomic.Pointer[DenyList]
	fetched atomic.Int64  // nanoseconds since 1970
	tried   chan struct{} // endFirst closes it, after the first attempt to fetch
	// endFirst may be called by the run of each server that has the list.
	endFirst func()
	// Used only by run.
	written   time.Time // the date of the copy
	unwritten bool      // the last attempt to write it failed
}

// run fetches until ctx ends, and logs when that begins to fail and when it works again. It asks
// more often while all hosts are refused.
func (f *follower) run(ctx context.Context, refusesAll func() bool) {
	failing := false
	for first := true; ; first = false {
		err := f.fetch(ctx)
		if first {
			f.endFirst()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && failing:
			f.log.Info().Msg("The deny list is fetched again.")
		case err != nil && !failing:
			f.log.Warn().Err(err).
				Msg("The deny list cannot be fetched. The last one stays in effect: " +
					"hosts that are denied meanwhile are not refused here. Logged once until it works again.")
		}
		failing = err != nil
		interval := f.from.Interval
		if refusesAll() { // hosts wait for it
			interval = min(interval, firstInterval)
		}
		// Servers that start together do not go on asking together.
		pause := time.NewTimer(interval - rand.N(interval/5+1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// fetch asks once. The list is in effect at once, and is written if it is another one.
func (f *follower) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	url := strings.TrimSuffix(f.from.URL, "/") + DeniedPath
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	// The transport itself and no http.Client: that would follow redirects.
	resp, err := f.from.Transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: the answer is %d", url, resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, files.MaxSize+1))
	switch {
	case err != nil:
		return fmt.Errorf("GET %s: %w", url, err)
	case len(text) > files.MaxSize:
		return fmt.Errorf("GET %s: the answer has more than %d bytes", url, files.MaxSize)
	case !bytes.HasPrefix(text, []byte(denyColumns)):
		return fmt.Errorf("GET %s: the answer is not a deny list; is it the address of an enrolment service?", url)
	}
	name := "the answer of " + url
	list, err := ParseDenyList(text, name)
	if err != nil {
		return err
	}
	if ahead := time.Until(list.date); ahead > MaxAhead {
		return fmt.Errorf("%s is of %s, %s ahead of the clock here; correct the clock that is wrong",
			name, rfc3339(list.date), ahead.Round(time.Second))
	}
	has := f.list.Load()
	same := !has.unusable && has.same(list)
	switch err := list.checkSuccessor(has, name); {
	case err == nil, time.Until(has.date) > MaxAhead: // the clock that has dated the list before was corrected
		logMissing(f.log, list.missing(has), f.path)
		f.list.Store(list)
	case same:
		list = has
	default:
		return err
	}
	f.fetched.Store(time.Now().UnixNano())
	if f.unwritten || !same || list.date.Sub(f.written).Abs() >= copyInterval {
		f.write(list)
	}
	return nil
}

// copyInterval is how often the copy is written though the hosts are the same, for its date.
const copyInterval = 5 * time.Minute

// write replaces the copy. The list is in effect without it.
func (f *follower) write(list *DenyList) {
	err := files.ReplaceMode(f.path, append([]byte(followedMark+f.from.URL+"\n"), list.Text()...), denyMode)
	if err != nil && !f.unwritten {
		f.log.Error().Err(err).Msg("The copy of the deny list cannot be written: " +
			"it is in effect, and would not be after a restart. Logged once until it works again.")
	}
	if f.unwritten = err != nil; err == nil {
		f.written = list.date
	}
}

// followedMark begins the first line of a file that is a copy.
const followedMark = "# Copied now and then from "

// FollowedFrom is the URL of the enrolment service whose deny list a file is a copy of.
func FollowedFrom(text []byte) (url string, followed bool) {
	rest, followed := bytes.CutPrefix(text, []byte(followedMark))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(line), followed
}

// KeepCurrent returns a service that keeps its deny list up to date while it serves. f may be nil.
//
// A service without a list, or with one that is too old, serves after its first attempt to fetch
// it, or after 2 s: systemd starts a service for the first request of a host, which would be
// refused otherwise.
func (f *DenyFile) KeepCurrent(
	serve func(context.Context, net.Listener) error,
) func(context.Context, net.Listener) error {
	return func(ctx context.Context, l net.Listener) error {
		following, stop := context.WithCancel(ctx)
		var follow sync.WaitGroup
		follow.Go(func() { f.Run(following) })
		defer follow.Wait()
		defer stop()
		f.awaitFirst(ctx)
		return serve(ctx, l)
	}
}

// refusesAll reports whether a list that is fetched refuses all hosts: there is no copy of it yet,
// or the copy is too old.
func (f *DenyFile) refusesAll() bool {
	list := f.follower.list.Load()
	_, old := f.age(list)
	return list.unusable || old
}

// awaitFirst waits for the first attempt to fetch a list while all hosts are refused, but for no
// longer than firstWait: a service that fetches from one that needs it must start.
func (f *DenyFile) awaitFirst(ctx context.Context) {
	if f == nil || f.follower == nil || !f.refusesAll() {
		return
	}
	bound := time.NewTimer(firstWait)
	defer bound.Stop()
	select {
	case <-f.follower.tried:
	case <-bound.C:
	case <-ctx.Done():
	}
}
