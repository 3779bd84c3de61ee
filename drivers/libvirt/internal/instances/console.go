// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ConsoleLog returns the end of what an instance wrote to its serial console, at most so many
// bytes. virtlogd, if it writes the file, moves what it has had enough of to files beside it with
// .0, .1 and so on at their ends.
func (m *Manager) ConsoleLog(ctx context.Context, node, uuid string, most int) ([]byte, error) {
	j, err := m.begin(ctx, node, uuid)
	if err != nil {
		return nil, err
	}
	g, err := j.here(ctx)
	if err != nil {
		return nil, j.verdict(err)
	}
	path := g.is.ConsoleLog
	if path == "" {
		return nil, j.fault("its serial console is not written to a file")
	}
	out, err := tail(path, most)
	switch {
	case errors.Is(err, fs.ErrNotExist): // it never ran
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the console log of instance %s: %w; the driver's user has to be able to read it", uuid, err)
	}
	if len(out) < most {
		former, err := tail(path+".0", most-len(out))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the console log of instance %s: %w", uuid, err)
		}
		out = append(former, out...)
	}
	return out, nil
}

// tail returns the last bytes of a file.
func tail(path string, most int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-int64(most)), int64(most)))
}
