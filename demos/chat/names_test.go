package main

import "testing"

func TestGoodNames(t *testing.T) {
	for _, name := range []string{"ann", "#lobby", "Jürgen", "李雷", "с", "<b>carl", "42", "😀", "a-b_c"} {
		if _, err := goodName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "#", " ", "a b", "a,b", "a/b", "\u200b", "a\u200bb", "\u2060x", "\u3164", "\u115f", "\u2800", "a\u034fb", "\ufe0f",
		"...", "a\u0301\u0301\u0301\u0301", "abcdefghijklmnopqrstuvwxyz", "\u00ad\u00ad", "\U000e0041a",
		"e\u0301", "𝐚nn", "ﬁn", "x²", "\u1112\u1161", // each could be written otherwise, too
	} {
		if got, err := goodName(name); err == nil {
			t.Errorf("%+q is taken for a name: %+q", name, got)
		}
	}
}

func TestLookAlikes(t *testing.T) {
	for _, pair := range [][2]string{
		{"ann", "ANN"}, {"anna", "аnnа"}, {"bob", "b0b"}, {"bill", "bi11"}, {"Ivan", "lvan"}, {"ann", "ａｎｎ"}, {"rene", "rené"}, {"rene", "RENÉ"}, {"Vũ", "vu"}, {"йод", "иод"},
		{"carmen", "carrnen"},
	} {
		a, _ := goodName(pair[0])
		b, _ := goodName(pair[1])
		if skeleton(a) != skeleton(b) {
			t.Errorf("%q and %q are two: %q, %q", pair[0], pair[1], skeleton(a), skeleton(b))
		}
	}
	if skeleton("ann") == skeleton("bob") {
		t.Error("ann and bob are one")
	}
}
