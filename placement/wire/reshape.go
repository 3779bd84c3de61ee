// SPDX-License-Identifier: Apache-2.0

package wire

// Reshape is the body of POST /reshaper: what the providers must have (all of each provider's
// inventories, by provider) and what the consumers must hold of them (all of each consumer's
// allocations, by consumer).
type Reshape struct {
	Inventories map[string]Inventories         `json:"inventories"`
	Allocations map[string]ConsumerAllocations `json:"allocations"`
}

// DecodeReshape reads the body of POST /reshaper. The error is a *jsonkit.Error.
func DecodeReshape(body []byte, v Version) (Reshape, error) {
	r := newReader(body)
	var shape Reshape
	err := r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "inventories":
			shape.Inventories = map[string]Inventories{}
			err = r.Object(func(key []byte) error {
				provider := string(key)
				if !IsUUIDKey(provider) {
					return r.Unknown()
				}
				inv, err := r.inventories()
				shape.Inventories[provider] = inv
				return err
			})
			if err == nil && len(shape.Inventories) == 0 {
				err = r.Invalid("must name at least one resource provider")
			}
		case "allocations":
			shape.Allocations, err = r.allocations(v)
		default:
			err = r.Unknown()
		}
		return err
	})
	switch {
	case err != nil:
	case shape.Inventories == nil:
		err = r.Missing("inventories")
	case shape.Allocations == nil:
		err = r.Missing("allocations")
	default:
		err = r.End()
	}
	return shape, err
}
