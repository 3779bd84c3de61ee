// SPDX-License-Identifier: Apache-2.0

package driverv1

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestProtocolIsAsReleased: the golden file lists everything that is on the wire. Once version 1 is
// released, lines may be added, never changed or removed.
func TestProtocolIsAsReleased(t *testing.T) {
	want := testproc.Try(os.ReadFile("testdata/descriptor.golden")).Or(t)
	got := describe(File_plugins_proto_driver_v1_driver_proto)
	testproc.Samef(t, cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")),
		"testdata/descriptor.golden")
}

// TestMajorVersionIsInTheName: a breaking change needs a new package.
func TestMajorVersionIsInTheName(t *testing.T) {
	testproc.Equal(t, File_plugins_proto_driver_v1_driver_proto.Package(), "compute.driver.v1", "package %s")
}

func describe(file protoreflect.FileDescriptor) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n", file.Package())
	services := file.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			fmt.Fprintf(&b, "rpc %s(%s%s) returns (%s%s)\n", m.FullName(),
				stream(m.IsStreamingClient()), m.Input().FullName(),
				stream(m.IsStreamingServer()), m.Output().FullName())
		}
	}
	describeMessages(&b, file.Messages())
	describeEnums(&b, file.Enums())
	return b.String()
}

func describeMessages(b *strings.Builder, messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		fmt.Fprintf(b, "message %s\n", m.FullName())
		fields := m.Fields()
		for j := range fields.Len() {
			f := fields.Get(j)
			kind := f.Kind().String()
			if f.Message() != nil {
				kind = string(f.Message().FullName())
			}
			oneof := ""
			if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
				oneof = fmt.Sprintf(" in %s", o.Name())
			}
			fmt.Fprintf(b, "  %d %s: %s %s presence=%v%s\n", f.Number(), f.Name(), f.Cardinality(),
				kind, f.HasPresence(), oneof)
		}
		describeEnums(b, m.Enums())
		describeMessages(b, m.Messages())
	}
}

func describeEnums(b *strings.Builder, enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		e := enums.Get(i)
		fmt.Fprintf(b, "enum %s\n", e.FullName())
		values := e.Values()
		for j := range values.Len() {
			fmt.Fprintf(b, "  %d %s\n", values.Get(j).Number(), values.Get(j).Name())
		}
	}
}

func stream(is bool) string {
	if is {
		return "stream "
	}
	return ""
}
