// SPDX-License-Identifier: Apache-2.0

package textutil

// maxWord bounds the words that Suggest looks at, in bytes.
const maxWord = 255

// Suggest is the candidate with the least Distance from the word, the first of several, if that is
// no more than maxDistance, else "". It costs the length of the word times that of all candidates.
func Suggest(word string, candidates []string, maxDistance int) string {
	best, least := "", maxDistance+1
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

// Distance is Levenshtein's, in bytes.
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
