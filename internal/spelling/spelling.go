// SPDX-License-Identifier: Apache-2.0

// Package spelling finds what somebody meant who wrote a name that does not exist.
package spelling

// maxWord bounds the words that are looked at, in bytes: nobody meant anything by longer ones.
const maxWord = 255

// Nearest is the candidate that takes the fewest changes to be made of the word, the first of several, if those are no more than most; "" if none is
// so near. It costs the length of the word times that of all candidates.
func Nearest(word string, candidates []string, most int) string {
	best, least := "", most+1
	if len(word) > maxWord {
		return ""
	}
	for _, c := range candidates {
		if d := Distance(word, c); d < least {
			best, least = c, d
		}
	}
	return best
}

// Distance is Levenshtein's, in bytes: how many have to be changed, added or taken away to make one of the other.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
