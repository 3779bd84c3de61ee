// SPDX-License-Identifier: Apache-2.0

package ownership

import ("testing"; "pgregory.net/rapid")

func TestDebug(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawWorld(t)
		in.Answer = drawAnswer(t, in.Base, true)
		out, err := Merge(in)
		if err != nil {
			return
		}
		again := in
		again.Known, again.Base, again.Record, again.Created = out.Tree, nil, out.Record, false
		again.Answer, again.Reshape = Strip(in.Answer, out.Record), false
		second, _ := Merge(again)
		if !second.Tree.Equal(out.Tree) {
			t.Fatalf("known\n%srecord\n%s\nbase\n%sanswer\n%slayers %v\nresult\n%s%s\n%v\n%v\nsecond\n%s%s\n%v", lines(in.Known), owners(in.Record.orEmpty()), lines(in.Base), lines(in.Answer), in.Layers, lines(out.Tree), owners(out.Record), out.Kept, out.Conflicts, lines(second.Tree), owners(second.Record), second.Conflicts)
		}
	})
}
