// SPDX-License-Identifier: Apache-2.0

// Package candidatestest has what the tests of the search for allocation candidates share: All finds every candidate of a
// small forest in the most obvious way, straight from the rules and with no regard for cost; Forest is a forest as data,
// drawn at random or by hand, that can be planted in a ledger; and Requests draws requests that have something to do with it.
package candidatestest
