// SPDX-License-Identifier: Apache-2.0

// Package jsonkit reads and writes JSON as the APIs of OpenStack's services need it.
//
// A [Reader] reads a text once, from front to back, into what the caller expects there, with the
// rules of Python's json and jsonschema; [Decode] reads one into values that keep the order of
// members and the text of numbers, for checks that show them. The Append functions write into a
// buffer and allocate nothing. [Unmarshal] is for texts of our own programs.
//
//	r := jsonkit.NewReader(body)
//	err := r.Object(func(key []byte) (err error) {
//		switch string(key) {
//		case "total":
//			total, err = r.Integer(1, math.MaxInt32)
//		default:
//			err = r.Unknown() // "JSON does not validate: color is not an allowed key"
//		}
//		return err
//	})
//	b = jsonkit.AppendString(b, name)
package jsonkit
