package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/secure/precis"
)

// maxName is how many characters a nickname or a room's name may have.
const maxName = 24

var errName = errors.New("a name has letters and digits of one alphabet, and nothing that cannot be seen")

// goodName returns a nickname or the name of a room in the form in which it is compared, and shown:
// in small letters, by the profile Nickname of PRECIS (RFC 8266). What looks like another name to a
// reader may still be another name; but a name does not mix alphabets that share shapes.
func goodName(name string) (string, error) {
	name = strings.TrimPrefix(strings.TrimSpace(name), "#")
	if name == "" {
		return "", errors.New("a name, please")
	}
	if n := utf8.RuneCountInString(name); n > maxName {
		return "", fmt.Errorf("a name has at most %d characters, this one has %d", maxName, n)
	}
	if strings.ContainsAny(name, " /,") {
		return "", errors.New("a name has no spaces, commas and slashes")
	}
	key, err := precis.Nickname.CompareKey(name)
	switch first, _ := utf8.DecodeRuneInString(key); {
	case err != nil || unicode.IsMark(first) || strings.ContainsAny(key, " /,"):
		return "", errName
	case utf8.RuneCountInString(key) > maxName: // one character may stand for several
		return "", fmt.Errorf("a name has at most %d characters, and this one is %q", maxName, key)
	}
	solid, alphabets := false, 0
	for _, alphabet := range []*unicode.RangeTable{unicode.Latin, unicode.Greek, unicode.Cyrillic} {
		if strings.ContainsFunc(key, func(r rune) bool { return unicode.Is(alphabet, r) }) {
			alphabets++
		}
	}
	for _, r := range key {
		solid = solid || unicode.IsLetter(r) || unicode.IsNumber(r)
	}
	if !solid || alphabets > 1 {
		return "", errName
	}
	return key, nil
}
