// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
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
	// fetchTime bounds one fetch.
	fetchTime = 10 * time.Second
)

// Source is where a deny list is fetched.
type Source struct {
	// URL is that of an enrolment service.
	URL string
	// Transport carries the requests.
	Transport http.RoundTripper
	// Interval is how often the list is fetched, less up to a fifth of it; 15 s when zero.
	Interval time.Duration
}

// FollowDenyFile is OpenDenyFile for a file that Run keeps like the list of an enrolment service.
// While that cannot be fetched the old list stays. A file that is missing is made, with no host.
// One that is not such a copy and has hosts is refused: they would be forgotten.
func FollowDenyFile(path string, from Source, log zerolog.Logger) (*DenyFile, error) {
	if from.Interval <= 0 {
		from.Interval = followInterval
	}
	w := &follower{path: path, from: from, log: log.With().Str("url", from.URL).Str("file", path).Logger()}
	content, err := files.Read(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := files.Create(path, w.text(&DenyList{}), 0o644); err != nil {
			return nil, fmt.Errorf("deny list: %w", err)
		}
	}
	f, err := OpenDenyFile(path, log)
	if err != nil {
		return nil, err
	}
	if _, copied := followedFrom(content.Data); !copied && len(f.Get().Denials()) > 0 {
		return nil, fmt.Errorf(
			"deny list: %s has %d hosts that were denied there, and would be replaced by the list of %s; put them on that list, and remove the file",
			path, len(f.Get().Denials()), from.URL,
		)
	}
	w.fetched.Store(time.Now().UnixNano())
	f.follower = w
	return f, nil
}

// Age is the time since the list was fetched last, or since the process began to try; followed is
// false for a list that is not fetched.
func (f *DenyFile) Age() (age time.Duration, followed bool) {
	if f == nil || f.follower == nil {
		return 0, false
	}
	return time.Since(time.Unix(0, f.follower.fetched.Load())), true
}

// follower fetches a list into a file.
type follower struct {
	path    string
	from    Source
	log     zerolog.Logger
	fetched atomic.Int64 // nanoseconds since 1970
}

// run fetches until ctx ends, and logs when that begins to fail and when it works again.
func (w *follower) run(ctx context.Context) {
	failing := false
	for {
		err := w.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && failing:
			w.log.Info().Msg("The deny list is fetched again.")
		case err != nil && !failing:
			w.log.Warn().Err(err).
				Msg("The deny list cannot be fetched. The list of the file stays in effect: hosts that are denied meanwhile are not refused here. Logged once until it works again.")
		}
		failing = err != nil
		// Servers that start together do not go on asking together.
		pause := time.NewTimer(w.from.Interval - rand.N(w.from.Interval/5+1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// fetch asks once, and writes the file if the list is another one.
func (w *follower) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	url := strings.TrimSuffix(w.from.URL, "/") + DeniedPath
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	// The transport itself and no http.Client: that would follow redirects.
	resp, err := w.from.Transport.RoundTrip(req)
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
	case !bytes.HasPrefix(text, []byte(denyHeader)):
		return fmt.Errorf("GET %s: the answer is not a deny list; is it the address of an enrolment service?", url)
	}
	list, err := ParseDenyList(text, "the answer of "+url)
	if err != nil {
		return err
	}
	if err := w.write(list); err != nil {
		return err
	}
	w.fetched.Store(time.Now().UnixNano())
	return nil
}

// write replaces the file, unless it has the list already.
func (w *follower) write(list *DenyList) error {
	text := w.text(list)
	if has, err := files.Read(w.path); err == nil && bytes.Equal(has.Data, text) {
		return nil
	}
	if err := files.ReplaceMode(w.path, text, 0o644); err != nil {
		return fmt.Errorf("write the deny list: %w", err)
	}
	return nil
}

// followedMark begins the first line of a file that is a copy.
const followedMark = "# Copied now and then from "

// text is the list as the file has it.
func (w *follower) text(list *DenyList) []byte {
	return append([]byte(followedMark+w.from.URL+"\n"), list.Text()...)
}

// followedFrom is the URL that a file is a copy of.
func followedFrom(text []byte) (url string, followed bool) {
	rest, followed := bytes.CutPrefix(text, []byte(followedMark))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(line), followed
}
