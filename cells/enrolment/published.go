// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// publishedFor is how long the deny list is not read again from the database, in which other
// processes evict hosts. Servers fetch it every 15 s.
const publishedFor = time.Second

// publishedList is the text of the deny list. Clients without a certificate may ask for it as often
// as they like: the database is read once a second at most, and once for all that ask meanwhile.
type publishedList struct {
	store apidb.Store
	file  *pki.DenyFile
	now   func() time.Time

	reads singleflight.Group
	mu    sync.Mutex
	text  []byte // nil: not read yet
	at    time.Time
	// fileList is the list of the file that text has: a change of the file counts at once.
	fileList *pki.DenyList
}

// get is the text.
func (p *publishedList) get(ctx context.Context) ([]byte, error) {
	if text := p.recent(); text != nil {
		return text, nil
	}
	text, err, _ := p.reads.Do("", func() (any, error) {
		if text := p.recent(); text != nil { // read meanwhile
			return text, nil
		}
		// The read is for all that wait, and not for the first alone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
		defer cancel()
		at, fileList := p.now(), p.file.Get()
		list, err := Denied(ctx, p.store, fileList)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.text, p.at, p.fileList = list.Dated(at.Unix(), at).Published(), at, fileList
		return p.text, nil
	})
	if err != nil {
		return nil, err
	}
	return text.([]byte), nil // the function above returns nothing else
}

// recent is the text if it can be used still.
func (p *publishedList) recent() []byte {
	fileList := p.file.Get()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == nil || p.fileList != fileList || p.now().Sub(p.at).Abs() >= publishedFor { // the clock may be set back
		return nil
	}
	return p.text
}
