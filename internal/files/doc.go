// SPDX-License-Identifier: Apache-2.0

// Package files reads and writes the small files that a daemon lives by.
//
//	Replace, Create, Disk  write: after a crash or a power cut a file is the old or the new one
//	Read, ReadSecret       read: not what others may change, nor secrets that they may read
//	Reloaded               read: a value made of files (tokens, certificates) follows them
//
// A Reloaded value looks at its files when it is asked for, at most once a second. There is no
// goroutine and nothing to stop.
package files
