// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strconv"
	"strings"
)

// acceptQuality is the client's quality values for the media types of answers, from 0 (refused) to
// 1.
type acceptQuality struct {
	json, html float64
}

// readAccept reads the value of an Accept header. Without a valid one everything is accepted, and
// JSON is preferred to HTML.
func readAccept(header string) acceptQuality {
	everything := acceptQuality{json: 1, html: 0.5}
	switch header {
	case "", "*/*", "application/json":
		return everything
	}
	var a acceptQuality
	var jsonRank, htmlRank int // How specific the range is that decided: 1 */*, 2 type/*, 3 type/subtype.
	for header != "" {
		part := header
		if comma := strings.IndexByte(header, ','); comma >= 0 {
			part, header = header[:comma], header[comma+1:]
		} else {
			header = ""
		}
		mediaRange, parameters, _ := strings.Cut(part, ";")
		mediaRange = strings.ToLower(strings.TrimSpace(mediaRange))
		if mediaRange == "" {
			continue
		}
		kind, subtype, ok := strings.Cut(mediaRange, "/")
		quality, valid := readQuality(parameters)
		if !ok || kind == "" || subtype == "" || !valid {
			return everything
		}
		rank := 3
		switch {
		case kind == "*" && subtype == "*":
			rank = 1
		case subtype == "*":
			rank = 2
		}
		if (rank == 1 || kind == "application" && (rank == 2 || subtype == "json")) && rank > jsonRank {
			a.json, jsonRank = quality, rank
		}
		if (rank == 1 || kind == "text" && (rank == 2 || subtype == "html")) && rank > htmlRank {
			a.html, htmlRank = quality, rank
		}
	}
	return a
}

// readQuality finds the q of a media range; the default is 1.
func readQuality(parameters string) (quality float64, valid bool) {
	for parameters != "" {
		var parameter string
		parameter, parameters, _ = strings.Cut(parameters, ";")
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if strings.EqualFold(name, "q") {
			q, err := strconv.ParseFloat(value, 64)
			return q, err == nil && q >= 0 && q <= 1
		}
	}
	return 1, true
}
