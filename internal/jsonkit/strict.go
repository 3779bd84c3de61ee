// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// ErrTrailing is the error of Unmarshal for data after the value.
var ErrTrailing = errors.New("there is data after the JSON value")

// Unmarshal is json.Unmarshal for what has to be of this very version of a program: a member that
// into has no field for is an error.
func Unmarshal(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ErrTrailing
	}
	return nil
}
