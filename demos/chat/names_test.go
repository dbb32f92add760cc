package main

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"ann": "ann", "#Lobby": "lobby", "Jürgen": "jürgen", "Ju\u0308rgen": "jürgen", "ＡＮＮ": "ann", "ﬁn": "fin", "x²": "x2",
		"李雷": "李雷", "カ・タ": "カ・タ", "с": "с", "<b>carl": "<b>carl", "42": "42", "a-b_c": "a-b_c", "cat😀": "cat😀",
		"हिन्दी": "हिन्दी", "क्ष": "क्ष", "அம்மா": "அம்மா", "שלום": "שלום", "می\u200cخواهم": "می\u200cخواهم", "น้ำ": "น\u0e49\u0e4dา",
		strings.Repeat("ü", 24): strings.Repeat("ü", 24), strings.Repeat("हि", 12): strings.Repeat("हि", 12),
	} {
		if got, err := goodName(name); got != want || err != nil {
			t.Errorf("goodName(%+q) = %+q, %v, want %+q", name, got, err, want)
		}
	}
	for name, want := range map[string]string{
		"": "a name, please", "#": "a name, please", " ": "a name, please",
		"a b": "no spaces", "a,b": "no spaces", "a/b": "no spaces", "a\u3000b": errName.Error(), "a，b": errName.Error(),
		strings.Repeat("x", 25): "at most 24 characters, this one has 25", strings.Repeat("Ⅷ", 7): "at most 24 characters, and this one is",
		"\u200b": errName.Error(), "a\u200bb": errName.Error(), "\u2060x": errName.Error(), "\u3164": errName.Error(), "\u2800": errName.Error(),
		"a\u034fb": errName.Error(), "x\ufe0f": errName.Error(), "\u202eann": errName.Error(), "\u0301ann": errName.Error(), "\u00ad": errName.Error(),
		"\x1b[2J": errName.Error(), "\xff": errName.Error(), "\U000e0041a": errName.Error(), "...": errName.Error(), "😀": errName.Error(),
		"аnn": errName.Error(), "αnn": errName.Error(), "αн": errName.Error(), // two alphabets
	} {
		if got, err := goodName(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("goodName(%+q) = %+q, %v, want an error with %s", name, got, err, want)
		}
	}
}

// A name of a name is the same: what is shown is what is compared.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"ann", "ＡＮＮ", "हिन्दी", "น้ำ", "İ", "#", "a\u0301\u0301"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		once, err := goodName(name)
		if err != nil {
			return
		}
		if twice, err := goodName(once); twice != once || err != nil {
			t.Errorf("goodName(%+q) = %+q, and of that %+q, %v", name, once, twice, err)
		}
		if clean(once) != once {
			t.Errorf("goodName(%+q) = %+q, which is not clean", name, once)
		}
	})
}
