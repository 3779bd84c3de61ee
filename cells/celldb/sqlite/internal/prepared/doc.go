// SPDX-License-Identifier: Apache-2.0

// Package prepared keeps the statements of a database prepared that are asked often, by their text.
//
// SQLite takes longer to understand the text of a list of ten servers than to find them. A statement is prepared when it is asked for the first time, on
// each connection that it gets to, and closed when so many others were asked since that there is no more room.
package prepared
