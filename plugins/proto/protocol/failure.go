// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// Limits of an error's details: they are sent in a header of the response, which other
// implementations keep small.
const (
	maxWords      = 16 << 10
	maxViolations = 500
	maxMore       = 50 // further problems of a configuration
	maxHint       = 2 << 10
	maxUUID       = 64 // in any form
)

// Kind is a typed error of the protocol.
type Kind int

// The typed errors of the protocol.
const (
	// KindOther is any other error.
	KindOther Kind = iota
	KindReshapeNeeded
	KindReshapeFailed
	KindNotReady
	KindConfigError
	// KindUnsupported has no detail: it is gRPC's own code.
	KindUnsupported
	KindInstanceNotFound
	KindInstanceFault
)

// Failure is a typed error, for both ends of the connection.
type Failure struct {
	Kind Kind
	// Words are the reason; for KindConfigError the problem of the key.
	Words string
	// Key is the configuration key of a KindConfigError.
	Key string
	// More are further problems of the configuration.
	More []KeyProblem
	// UUID is the UUID of the instance, of KindInstanceNotFound and KindInstanceFault.
	UUID string
	// Violations and Hint belong to KindReshapeFailed.
	Violations []Violation
	Hint       string
	// Message is the text of the whole error, with what was wrapped around it.
	Message string
}

// KeyProblem is a configuration key and its problem.
type KeyProblem struct {
	Key, Problem string
}

// Violation is one violation that prevents a reshape.
type Violation struct {
	Consumer, Provider, Class, Problem, Hint string
}

// Err returns the failure as a gRPC status with its detail.
func (f Failure) Err() error {
	var code codes.Code
	var detail protoadapt.MessageV1
	words := cut(f.Words, maxWords)
	switch f.Kind {
	case KindReshapeNeeded:
		code, detail = codes.FailedPrecondition, &driverv1.ReshapeNeeded{Reason: words}
	case KindReshapeFailed:
		code, detail = codes.Aborted, f.reshapeFailed(words)
	case KindNotReady:
		code, detail = codes.FailedPrecondition, &driverv1.NotReady{Reason: words}
	case KindConfigError:
		code, detail = codes.InvalidArgument, f.configError(words)
	case KindInstanceNotFound:
		code, detail = codes.NotFound, &driverv1.InstanceNotFound{Uuid: cut(f.UUID, maxUUID)}
	case KindInstanceFault:
		code, detail = codes.FailedPrecondition, &driverv1.InstanceFault{Uuid: cut(f.UUID, maxUUID), Reason: words}
	case KindUnsupported:
		return status.Error(codes.Unimplemented, cut(f.Message, maxWords))
	default:
		return status.Error(codes.Unknown, cut(f.Message, maxWords))
	}
	st := status.New(code, cut(f.Message, maxWords))
	with, err := st.WithDetails(detail)
	if err != nil { // the detail cannot be encoded: keep at least the message
		return st.Err()
	}
	return with.Err()
}

func (f Failure) configError(words string) *driverv1.ConfigError {
	const maxBytes = 512
	out := &driverv1.ConfigError{Key: cut(f.Key, maxWords), Problem: words}
	for i, p := range f.More {
		if i == maxMore {
			out.More = append(out.More, &driverv1.ConfigError{Problem: fmt.Sprintf("and %d more", len(f.More)-i)})
			break
		}
		out.More = append(out.More, &driverv1.ConfigError{Key: cut(p.Key, maxBytes), Problem: cut(p.Problem, maxBytes)})
	}
	return out
}

func (f Failure) reshapeFailed(words string) *driverv1.ReshapeFailed {
	out := &driverv1.ReshapeFailed{Reason: words, Remedy: cut(f.Hint, maxHint)}
	for i, v := range f.Violations {
		if i == maxViolations {
			out.Offenders = append(out.Offenders,
				&driverv1.Offender{Problem: fmt.Sprintf("and %d more", len(f.Violations)-i)})
			break
		}
		const maxBytes = 512
		out.Offenders = append(out.Offenders, &driverv1.Offender{
			ConsumerUuid: cut(v.Consumer, maxBytes), ProviderUuid: cut(v.Provider, maxBytes),
			ResourceClass: cut(v.Class, maxBytes), Problem: cut(v.Problem, maxBytes), Remedy: cut(v.Hint, maxBytes),
		})
	}
	return out
}

// FailureOf returns the typed error of a gRPC error. An error without one is a KindOther with the
// status' message.
func FailureOf(err error) Failure {
	st, _ := status.FromError(err)
	f := Failure{Message: st.Message()}
	if st.Code() == codes.Unimplemented {
		f.Kind = KindUnsupported
	}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *driverv1.ReshapeNeeded:
			f.Kind, f.Words = KindReshapeNeeded, d.GetReason()
		case *driverv1.ReshapeFailed:
			f.Kind, f.Words = KindReshapeFailed, d.GetReason()
			f.Violations, f.Hint = nil, d.GetRemedy()
			for _, v := range d.GetOffenders() {
				f.Violations = append(f.Violations, Violation{
					Consumer: v.GetConsumerUuid(), Provider: v.GetProviderUuid(), Class: v.GetResourceClass(),
					Problem: v.GetProblem(), Hint: v.GetRemedy(),
				})
			}
		case *driverv1.NotReady:
			f.Kind, f.Words = KindNotReady, d.GetReason()
		case *driverv1.ConfigError:
			f.Kind, f.Key, f.Words, f.More = KindConfigError, d.GetKey(), d.GetProblem(), nil
			for _, p := range d.GetMore() {
				f.More = append(f.More, KeyProblem{Key: p.GetKey(), Problem: p.GetProblem()})
			}
		case *driverv1.InstanceNotFound:
			f.Kind, f.UUID = KindInstanceNotFound, d.GetUuid()
		case *driverv1.InstanceFault:
			f.Kind, f.UUID, f.Words = KindInstanceFault, d.GetUuid(), d.GetReason()
		default:
			continue
		}
		break
	}
	return f
}

// shown is a text in an error, at most so much of it.
func shown(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	return s
}

// cut bounds a string and makes it valid UTF-8, which protobuf requires.
func cut(s string, maxBytes int) string {
	if len(s) > maxBytes {
		s = s[:maxBytes] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
