package main

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is how many characters a nickname or a room's name may have.
const maxName = 24

// goodName returns the name without what does no good in one.
func goodName(name string) (string, error) {
	name = strings.TrimPrefix(strings.Map(narrow, clean(name)), "#")
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

// narrow returns the ASCII character that a wide one of East Asian keyboards stands for.
func narrow(r rune) rune {
	if '！' <= r && r <= '～' {
		return r - '！' + '!'
	}
	return r
}

// forms are characters that Unicode has for compatibility, and marks that belong to letters which
// have a character of their own. With them, one name could be written in several ways.
var forms = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x00aa, 0x00aa, 1}, {0x00b2, 0x00b3, 1}, {0x00b9, 0x00ba, 1}, // raised letters and digits
		{0x0132, 0x0133, 1}, {0x017f, 0x017f, 1}, {0x01c4, 0x01cc, 1}, {0x01f1, 0x01f3, 1}, // two letters in one
		{0x02b0, 0x036f, 1},                      // raised letters, marks
		{0x1100, 0x11ff, 1},                      // parts of Korean syllables
		{0x1d2c, 0x1dff, 1}, {0x1f00, 0x1fff, 1}, // raised letters, marks, ancient Greek
		{0x2070, 0x218f, 1}, {0x2460, 0x24ff, 1}, // raised and circled digits, letters as signs
		{0x2e80, 0x2fdf, 1}, {0x3099, 0x309c, 1}, {0x3130, 0x318f, 1}, {0x3200, 0x33ff, 1},
		{0xa960, 0xa97f, 1}, {0xd7b0, 0xd7ff, 1}, {0xf900, 0xfdff, 1}, {0xfe20, 0xfeff, 1},
		{0xff5f, 0xffef, 1},
	},
	R32: []unicode.Range32{{0x1d400, 0x1d7ff, 1}, {0x1ee00, 0x1eeff, 1}, {0x1f100, 0x1f2ff, 1}, {0x2f800, 0x2fa1f, 1}},
}

// visible returns why a name cannot be told from another, or from none.
func visible(name string) error {
	marks, solid := 0, false
	for _, r := range name {
		switch {
		case unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Z, unicode.Variation_Selector,
			unicode.Other_Default_Ignorable_Code_Point) || r == '\u2800':
			return errors.New("a name without invisible characters, please")
		case unicode.Is(forms, r):
			return errors.New("a name of plain letters, please")
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

// accented are small letters with marks, each with its letter. Œ and such are letters of their own.
var accented = pairs("àaáaâaãaäaåaāaăaąaǎaǟaǡaǻaȁaȃaȧaçcćcĉcċcčcďdèeéeêeëeēeĕeėeęeěeȅeȇeȩeĝgğgġgģgǧgǵg",
	"ĥhȟhìiíiîiïiĩiīiĭiįiǐiȉiȋiĵjǰjķkǩkĺlļlľlñnńnņnňnǹnòoóoôoõoöoōoŏoőoơoǒoǫoǭoȍoȏoȫoȭoȯoȱo",
	"ŕrŗrřrȑrȓrśsŝsşsšsșsţtťtțtùuúuûuüuũuūuŭuůuűuųuưuǔuǖuǘuǚuǜuȕuȗuŵwýyÿyŷyȳyźzżzžzǣæǽæǿøǯʒ",
	"ΐιάαέεήηίιΰυϊιϋυόούυώωйиѐеёеѓгїіќкѝиўуѷѵӂжӑаӓаӗеӛәӝжӟзӣиӥиӧоӫөӭэӯуӱуӳуӵчӹы",
	"ḁaḃbḅbḇbḉcḋdḍdḏdḑdḓdḕeḗeḙeḛeḝeḟfḡgḣhḥhḧhḩhḫhẖhḭiḯiḱkḳkḵkḷlḹlḻlḽlḿmṁmṃmṅnṇnṉnṋnṍoṏoṑoṓoṕpṗp",
	"ṙrṛrṝrṟrṡsṣsṥsṧsṩsṫtṭtṯtṱtẗtṳuṵuṷuṹuṻuṽvṿvẁwẃwẅwẇwẉwẘwẋxẍxẏyẙyẑzẓzẕzẛs",
	"ạaảaấaầaẩaẫaậaắaằaẳaẵaặaẹeẻeẽeếeềeểeễeệeỉiịiọoỏoốoồoổoỗoộoớoờoởoỡoợoụuủuứuừuửuữuựuỳyỵyỷyỹy")

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
	for _, r := range name {
		if r == 'I' { // looks like a small L
			r = 'l'
		}
		r = unicode.ToLower(r)
		if unicode.IsMark(r) {
			continue
		}
		if letter, ok := accented[r]; ok {
			r = letter
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
