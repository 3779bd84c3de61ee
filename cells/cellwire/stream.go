// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
)

// StreamProtocol is what a request for a stream is upgraded to (HTTP/1.1, 101): frames in both
// directions, see [Stream].
const StreamProtocol = "compute-agent-stream"

// Purpose says what a stream is for.
type Purpose string

// The purposes.
const (
	PurposeConsoleLog Purpose = "console-log" // the end of what a guest wrote to its console
	PurposeConsole    Purpose = "console"     // the serial console of a guest, both ways
	PurposeDisk       Purpose = "disk"        // a disk of a guest, from the source of its migration to the destination
)

// StreamRule is what holds for the streams of a purpose.
type StreamRule struct {
	// Ability is what the node of the server needs.
	Ability string
	// Hosts says that only a host asks for it, of another host.
	Hosts bool
	// MaxBytes bounds what each end may send; 0 is no bound.
	MaxBytes int64
	// Idle is how long a stream may be without a frame of either end.
	Idle time.Duration
}

// streamRules has the rule of each purpose.
var streamRules = map[Purpose]StreamRule{
	PurposeConsoleLog: {Ability: plugins.AbilityConsoleLog, MaxBytes: 2 << 20, Idle: time.Minute},
	PurposeConsole:    {Ability: plugins.AbilityConsole, Idle: time.Hour},
	PurposeDisk:       {Ability: plugins.AbilityMigrate, Hosts: true, Idle: time.Hour}, // which a source may read zeros
}

// Rule returns the rule of a purpose. A purpose that is not known is refused (bad request).
func (p Purpose) Rule() (StreamRule, error) {
	rule, known := streamRules[p]
	if !known {
		return StreamRule{}, &Error{Status: http.StatusBadRequest, Code: CodeBadRequest,
			Message: fmt.Sprintf("%.64q is no purpose of a stream", string(p))}
	}
	return rule, nil
}

// StreamOffer tells the agent of a host that a client wants a stream. It opens the other end with
// the id, or opens it and aborts it to say why not.
type StreamOffer struct {
	ID      string  `json:"id"`
	Purpose Purpose `json:"purpose"`
	UUID    string  `json:"uuid"` // of the server
	// Length is how many bytes are asked for, where the purpose has a length; 0: all.
	Length int64 `json:"length,omitempty"`
}

// The frames of a stream: a byte for the kind, the length in four bytes (big endian), and so many
// bytes.
const (
	frameData  = 0 // bytes
	frameEnd   = 1 // this end sends no more
	frameAbort = 2 // an Error in JSON; both directions end
	headerSize = 5
	// maxFrame bounds a frame's content, in bytes.
	maxFrame = 64 << 10
)

// ErrStreamLost says that the connection of a stream ended before the stream did.
var ErrStreamLost = errors.New("the connection of the stream was lost")

// Stream is one end of a stream of bytes in both directions. One goroutine may read while another
// one writes; Abort and Close may be called at any time.
type Stream struct {
	conn io.Closer
	from io.Reader
	to   io.Writer
	// limit, if set, is called before each write to the connection, which may last so long.
	limit func(time.Time) error

	left    int   // of the frame that is being read
	readErr error // of all further reads

	writing sync.Mutex
	ended   bool // no data is written any more
}

// NewStream makes an end of a connection that was upgraded; from is what is read from, where the
// connection has read ahead. A connection that can is given a limit for each write.
func NewStream(conn io.ReadWriteCloser, from io.Reader) *Stream {
	s := &Stream{conn: conn, from: from, to: conn}
	if c, ok := conn.(interface{ SetWriteDeadline(at time.Time) error }); ok {
		s.limit = c.SetWriteDeadline
	}
	return s
}

// Read reads what the other end wrote: io.EOF after its CloseWrite, an [*Error] after its Abort,
// and ErrStreamLost if the connection ended before.
func (s *Stream) Read(p []byte) (int, error) {
	for s.left == 0 && s.readErr == nil {
		kind, size, err := s.header()
		switch {
		case err != nil:
			s.readErr = err
		case kind == frameData:
			s.left = size
		case kind == frameEnd:
			s.readErr = io.EOF
		default:
			s.readErr = s.aborted(size)
		}
	}
	if s.readErr != nil {
		return 0, s.readErr
	}
	n, err := s.from.Read(p[:min(len(p), s.left)])
	s.left -= n
	if err != nil && (s.left > 0 || !errors.Is(err, io.EOF)) {
		s.readErr = streamLost(err)
		return n, s.readErr
	}
	return n, nil
}

// header reads the beginning of a frame.
func (s *Stream) header() (kind byte, size int, err error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(s.from, h[:]); err != nil {
		return 0, 0, streamLost(err)
	}
	n := binary.BigEndian.Uint32(h[1:])
	if h[0] > frameAbort || n > maxFrame {
		return 0, 0, fmt.Errorf("%w: a frame of kind %d with %d bytes", ErrStreamLost, h[0], n)
	}
	return h[0], int(n), nil
}

// aborted reads why the other end aborted the stream.
func (s *Stream) aborted(size int) error {
	data := make([]byte, size)
	if _, err := io.ReadFull(s.from, data); err != nil {
		return streamLost(err)
	}
	var a abortMessage
	if err := json.Unmarshal(data, &a); err != nil || a.Code == "" {
		return fmt.Errorf("%w: it was aborted without a reason", ErrStreamLost)
	}
	return &Error{Status: a.Status, Code: a.Code, Message: a.Message}
}

// streamLost is ErrStreamLost for a reason, which is not wrapped: a lost stream is no io.EOF.
func streamLost(err error) error { return fmt.Errorf("%w: %s", ErrStreamLost, err.Error()) }

// Write sends bytes to the other end.
func (s *Stream) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), maxFrame)
		if err := s.send(frameData, p[:n]); err != nil {
			return written, err
		}
		written += n
		p = p[n:]
	}
	return written, nil
}

// CloseWrite says that nothing more is written. The other direction goes on.
func (s *Stream) CloseWrite() error { return s.send(frameEnd, nil) }

// Abort ends both directions with a reason for the other end, and closes the connection. The other
// end misses the reason if it cannot be reached, or while something is being written.
func (s *Stream) Abort(why *Error) {
	data, err := json.Marshal(abortMessage{
		Error{Code: why.Code, Message: fmt.Sprintf("%.4000s", why.Message)}, why.Status,
	})
	if err == nil && s.writing.TryLock() {
		_ = s.write(frameAbort, data) // it may be gone
		s.writing.Unlock()
	}
	_ = s.Close() // nothing is left to be sent
}

// abortMessage is an Error with its status, which an HTTP response has elsewhere.
type abortMessage struct {
	Error
	Status int `json:"status"`
}

// Close closes the connection. The other end sees ErrStreamLost if it expects more.
func (s *Stream) Close() error { return s.conn.Close() }

// writeTime is how long the other end may take to receive a frame.
const writeTime = time.Minute

var errEnded = errors.New("the stream was ended by this side")

func (s *Stream) send(kind byte, content []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.write(kind, content)
}

// write writes a frame; s.writing is held.
func (s *Stream) write(kind byte, content []byte) error {
	if s.ended && kind != frameAbort {
		return errEnded
	}
	s.ended = kind != frameData
	if s.limit != nil {
		if err := s.limit(time.Now().Add(writeTime)); err != nil {
			return streamLost(err)
		}
	}
	frame := make([]byte, headerSize, headerSize+len(content))
	frame[0] = kind
	binary.BigEndian.PutUint32(frame[1:], uint32(len(content))) // at most maxFrame
	if _, err := s.to.Write(append(frame, content...)); err != nil {
		s.ended = true
		return streamLost(err)
	}
	return nil
}
