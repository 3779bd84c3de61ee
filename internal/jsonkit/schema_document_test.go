// SPDX-License-Identifier: Apache-2.0

package jsonkit_test

import (
	"encoding/json"
	"testing"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestDocumentHasAllKeywords(t *testing.T) {
	s := js.ClosedObject(js.Properties{
		{Name: "name", Schema: js.Schema{js.Type("string"),
			js.MinLength(1), js.MaxLength(9), js.Pattern("^a"), js.Described("A name.")}},
		{Name: "size", Schema: js.Schema{js.Type("integer", "null"), js.Minimum(1), js.Maximum(5)}},
		{Name: "tags", Schema: js.Schema{js.Type("array"), js.Items(js.Schema{js.Enum("x", nil)}), js.MinItems(1),
			js.MaxItems(2), js.UniqueItems()}},
		{Name: "more", Schema: js.Schema{js.Type("object"),
			js.MinProperties(1), js.MaxProperties(3), js.PatternProperties("^k$", js.Schema{js.ExclusiveMinimum(0)})}},
		{Name: "ip", Schema: js.Schema{js.AnyOf(js.Schema{js.Format("ipv4")}, js.Schema{js.Format("ipv6")})}},
	}, "name")
	const want = `{"additionalProperties":false,"properties":{` +
		`"ip":{"anyOf":[{"format":"ipv4"},{"format":"ipv6"}]},` +
		`"more":{"additionalProperties":false,"maxProperties":3,"minProperties":1,` +
		`"patternProperties":{"^k$":{"exclusiveMinimum":0}},"type":"object"},` +
		`"name":{"description":"A name.","maxLength":9,"minLength":1,"pattern":"^a","type":"string"},` +
		`"size":{"maximum":5,"minimum":1,"type":["integer","null"]},` +
		`"tags":{"items":{"enum":["x",null]},"maxItems":2,"minItems":1,"type":"array","uniqueItems":true}},` +
		`"required":["name"],"type":"object"}`
	got := testproc.Try(json.Marshal(js.Document(s))).Or(t)
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
