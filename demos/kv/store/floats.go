package store

import (
	"bytes"
	"math"
	"math/big"
	"strconv"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// Numbers are what C's strtod and strtold read, as redis-server takes those: also hexadecimal ones,
// "1.", ".5", "+1" and "Infinity" in any case.

// maxFloat is the length of a number that INCRBYFLOAT and the like still read.
const maxFloat = 5<<10 - 1

// A long double of x86 is less than 2 to the power of bigMaxExp. What is not more than tooSmall is
// 0.
const bigMaxExp = 16384

var tooSmall = new(big.Float).SetMantExp(big.NewFloat(1), -16446)

// parseFloat parses an argument as redis-server does those that are a double: neither NaN, nor too
// large, nor so small that it would be 0.
func parseFloat(b []byte) (f float64, ok bool) {
	f, inRange, ok := strtod(b)
	return f, ok && inRange
}

// strtod returns the number that all of b is. inRange is false for one that is too large, f is
// infinite then, and for one that is so small that f is 0.
func strtod(b []byte) (f float64, inRange, ok bool) {
	n, ok := scanNumber(b)
	if !ok {
		return 0, false, false
	}
	f, err := strconv.ParseFloat(n.text(b), 64)
	if n.infinite {
		return f, true, true
	}
	return f, err == nil && (f != 0 || n.zero), true
}

// parseBig parses a number as a long double of x86, which INCRBYFLOAT calculates with.
func parseBig(b []byte) (f *big.Float, ok bool) {
	n, ok := scanNumber(b)
	switch {
	case !ok || len(b) > maxFloat:
		return nil, false
	case n.infinite:
		return new(big.Float).SetPrec(64).SetInf(n.negative), true
	case n.zero:
		return new(big.Float).SetPrec(64), true
	case !n.near(5000) && !n.hex || !n.near(bigMaxExp+100): // before it takes long to calculate
		return nil, false
	}
	f = n.big()
	ok = f.MantExp(nil) <= bigMaxExp && f.Cmp(tooSmall) > 0
	if n.negative {
		f.Neg(f)
	}
	return f, ok
}

// A number is where the parts of one are.
type number struct {
	negative, infinite, zero, hex bool

	mantissa []byte // digits, at most one point among them
	lead     int64  // digits before the point, from the first on that is not 0; or as many zeros behind it, less than 0
	exp      int64  // as it is written; of 2 if hex, else of 10
}

// scanNumber reports false if b is no number, or NaN.
func scanNumber(b []byte) (n number, ok bool) {
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		n.negative = b[0] == '-'
		b = b[1:]
	}
	if is(b, "INF") || is(b, "INFINITY") {
		n.infinite = true
		return n, true
	}
	if len(b) > 1 && b[0] == '0' && b[1]|0x20 == 'x' {
		n.hex = true
		b = b[2:]
	}
	i, digits := n.scanMantissa(b)
	if n.mantissa = b[:i]; digits == 0 {
		return n, false
	}
	if i == len(b) {
		return n, true
	}
	mark := byte('e')
	if n.hex {
		mark = 'p'
	}
	if b[i]|0x20 != mark {
		return n, false
	}
	n.exp, ok = scanExponent(b[i+1:])
	return n, ok
}

// scanMantissa returns where it ends, and the number of its digits.
func (n *number) scanMantissa(b []byte) (end, digits int) {
	n.zero = true
	point := false
	for ; end < len(b); end++ {
		switch c := b[end]; {
		case c == '.' && !point:
			point = true
			continue
		case c == '0':
		case c >= '1' && c <= '9' || n.hex && c|0x20 >= 'a' && c|0x20 <= 'f':
			n.zero = false
		default:
			return end, digits
		}
		digits++
		if !point && !n.zero {
			n.lead++
		} else if point && n.zero {
			n.lead--
		}
	}
	return end, digits
}

func scanExponent(b []byte) (exp int64, ok bool) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		exp = min(exp*10+int64(c-'0'), 1<<40) // more than the arguments of a command can make up for
	}
	if negative {
		exp = -exp
	}
	return exp, len(b) > 0
}

// magnitude is the exponent if the mantissa begins with a point, and then a digit that is not 0.
func (n *number) magnitude() int64 {
	if n.hex {
		return 4*n.lead + n.exp
	}
	return n.lead + n.exp
}

func (n *number) near(limit int64) bool { return n.magnitude() < limit && n.magnitude() > -limit }

// text is the number for package strconv, which wants an exponent if it is hexadecimal, and reads
// no more than five digits of one.
func (n *number) text(b []byte) string {
	const most = 99999
	if !n.hex && n.exp <= most && n.exp >= -most {
		return string(b)
	}
	sign, prefix, mark := "", "", "e"
	if n.negative {
		sign = "-"
	}
	if n.hex {
		prefix, mark = "0x", "p"
	}
	digits := bytes.TrimLeft(n.mantissa, "0.")
	digits = bytes.ReplaceAll(digits, []byte("."), nil)
	exp := min(max(n.magnitude(), -most), most)
	if n.zero {
		digits = []byte("0")
	}
	return sign + prefix + "." + string(digits) + mark + strconv.FormatInt(exp, 10)
}

// big returns what the number is, without its sign, with 64 bits.
func (n *number) big() *big.Float {
	before, behind, _ := bytes.Cut(n.mantissa, []byte("."))
	digits := string(before) + string(behind)
	base, exp := 10, int(n.exp)-len(behind) // what is far off has been refused
	if n.hex {
		base, exp = 16, int(n.exp)-4*len(behind)
	}
	i, _ := new(big.Int).SetString(digits, base)
	mantissa := new(big.Float).SetInt(i) // exact
	f := new(big.Float).SetPrec(64)
	if n.hex {
		return f.SetMantExp(f.Set(mantissa), exp)
	}
	power := new(big.Float).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil))
	if exp < 0 {
		return f.Quo(mantissa, power)
	}
	return f.Mul(mantissa, power)
}

// appendBig writes f with up to 17 decimals.
func appendBig(dst []byte, f *big.Float) []byte {
	if f.MantExp(nil) < -60 { // it takes long to find that no decimal is left
		return append(dst, '0')
	}
	dst = trimZeros(f.Append(dst, 'f', 17))
	if string(dst) == "-0" {
		return append(dst[:0], '0')
	}
	return dst
}

// double answers a number with 17 digits if it needs that many, as redis-server 7.0 does.
func (x *Call) double(f float64) {
	var room [32]byte
	digits := appendDouble(room[:0], f)
	if x.V == resp.RESP3 {
		x.Out = append(append(append(x.Out, ','), digits...), '\r', '\n')
	} else {
		x.bulk(digits)
	}
}

// appendDouble writes f as C's "%.17g" does.
func appendDouble(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1e17 || math.IsInf(f, 0) {
		return resp.AppendFloat(dst, f)
	}
	var room [32]byte
	e := strconv.AppendFloat(room[:0], f, 'e', 16, 64)
	mantissa, exp, _ := bytes.Cut(e, []byte("e"))
	exponent, _ := strconv.Atoi(string(exp))
	if exponent < -4 || exponent >= 17 {
		dst = append(dst, trimZeros(mantissa)...)
		return append(append(dst, 'e'), exp...)
	}
	return append(dst, trimZeros(strconv.AppendFloat(room[:0], f, 'f', 16-exponent, 64))...)
}

// appendStored writes a score as ZSCAN shows it: with all digits if it is an integer.
func appendStored(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) <= math.MaxInt64/2 {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return appendDouble(dst, f)
}

// trimZeros cuts zeros at the end of decimals.
func trimZeros(digits []byte) []byte {
	if !bytes.Contains(digits, []byte(".")) {
		return digits
	}
	return bytes.TrimSuffix(bytes.TrimRight(digits, "0"), []byte("."))
}
