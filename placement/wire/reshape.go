// SPDX-License-Identifier: Apache-2.0

package wire

// Reshape is the body of POST /reshaper: what the providers shall have (all of each provider's inventories, by provider)
// and what the consumers shall hold of them (all of each consumer's allocations, by consumer).
type Reshape struct {
	Inventories map[string]Inventories         `json:"inventories"`
	Allocations map[string]ConsumerAllocations `json:"allocations"`
}

// DecodeReshape reads the body of POST /reshaper. The error is a *BodyError.
func DecodeReshape(body []byte, v Version) (Reshape, error) {
	r := newReader(body)
	var shape Reshape
	err := r.object(func(key []byte) (err error) {
		switch string(key) {
		case "inventories":
			shape.Inventories = map[string]Inventories{}
			err = r.object(func(key []byte) error {
				provider := string(key)
				if !IsUUIDKey(provider) {
					return r.unknown()
				}
				inv, err := r.inventories()
				shape.Inventories[provider] = inv
				return err
			})
			if err == nil && len(shape.Inventories) == 0 {
				err = r.invalid("must name at least one resource provider")
			}
		case "allocations":
			shape.Allocations, err = r.allocations(v)
		default:
			err = r.unknown()
		}
		return err
	})
	switch {
	case err != nil:
	case shape.Inventories == nil:
		err = r.missing("inventories")
	case shape.Allocations == nil:
		err = r.missing("allocations")
	default:
		err = r.end()
	}
	return shape, err
}
