// SPDX-License-Identifier: Apache-2.0

// Package fresh keeps a value that is made of files as new as the files are: tokens, a policy, certificates. Whoever asks
// for the value has the files looked at, at most once a second; there is no goroutine and nothing to stop.
package fresh
