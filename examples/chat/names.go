package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxName is how many characters a nickname or a room's name may have.
const maxName = 24

// goodName returns the name without what does no good in one.
func goodName(name string) (string, error) {
	name = norm.NFKC.String(strings.TrimPrefix(clean(name), "#"))
	switch {
	case name == "":
		return "", errors.New("a name, please")
	case strings.ContainsAny(name, " /,"):
		return "", errors.New("a name without spaces, commas and slashes, please")
	case utf8.RuneCountInString(name) > maxName:
		return "", fmt.Errorf("a name of at most %d characters, please", maxName)
	}
	return name, visible(name)
}

// visible returns why a name cannot be told from another, or from none.
func visible(name string) error {
	marks, solid := 0, false
	for _, r := range name {
		switch {
		case unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Z, unicode.Variation_Selector,
			unicode.Other_Default_Ignorable_Code_Point) || r == '\u2800':
			return errors.New("a name without invisible characters, please")
		case unicode.IsMark(r):
			if marks++; marks > 2 {
				return errors.New("a name with fewer marks on a letter, please")
			}
			continue
		case unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsSymbol(r):
			solid = true
		case !unicode.IsPunct(r):
			return errors.New("a name of letters and digits, please")
		}
		marks = 0
	}
	if !solid {
		return errors.New("a name with a letter or a digit, please")
	}
	if unicode.In([]rune(name)[0], unicode.M) {
		return errors.New("a name that begins with a letter, please")
	}
	return nil
}

// lookAlikes are characters that look like another, in most fonts: Cyrillic and Greek letters,
// digits.
var lookAlikes = pairs("аaеeоoрpсcуyхxіiјjѕsԁdһhқkӏlԛqԝwвbнhкkмmтtґrгrпn", "αaοoνvρpτtυuιiκkηnωwβbεeχxγyμu", "0o1l|l!iıiɩiɑaɡgⅼlǀl")

func pairs(lists ...string) map[rune]rune {
	m := make(map[rune]rune)
	for _, list := range lists {
		rs := []rune(list)
		for i := 0; i+1 < len(rs); i += 2 {
			m[rs[i]] = rs[i+1]
		}
	}
	return m
}

// skeleton is the same for names that look alike: only one of them can be somebody's.
func skeleton(name string) string {
	var b strings.Builder
	for _, r := range norm.NFKD.String(name) {
		if r == 'I' { // looks like a small L
			r = 'l'
		}
		r = unicode.ToLower(r)
		if unicode.IsMark(r) {
			continue
		}
		if like, ok := lookAlikes[r]; ok {
			r = like
		}
		if r == 'i' {
			r = 'l' // in capitals they are one
		}
		b.WriteRune(r)
	}
	return strings.ReplaceAll(strings.ReplaceAll(b.String(), "rn", "m"), "vv", "w")
}
