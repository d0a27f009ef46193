package field

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

func span(min, max float64) string {
	f := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	return f(min) + "-" + f(max)
}

// wrongShape names what stands where a scalar of another type belongs.
func wrongShape(n *yamldoc.Node, what string) error {
	switch n.Kind {
	case yamldoc.Mapping:
		return fmt.Errorf("a mapping stands where %s belongs", what)
	case yamldoc.Sequence:
		return fmt.Errorf("a list stands where %s belongs", what)
	case yamldoc.Null:
		return errors.New("null is not allowed here")
	}
	return fmt.Errorf("%q is not %s", n.Value, what)
}

// Int is a decimal integer in min..max.
func Int(min, max int) Codec[int] {
	lo, hi := float64(min), float64(max)
	return Codec[int]{
		Type: Type{Name: "integer", Min: &lo, Max: &hi, Examples: []string{strconv.Itoa(min)}},
		Parse: func(n *yamldoc.Node) (int, error) {
			if n.Kind != yamldoc.Scalar || n.Tag != yamldoc.Int {
				return 0, wrongShape(n, "an integer in "+span(lo, hi))
			}
			v, err := strconv.Atoi(n.Value)
			if err != nil || v < min || v > max {
				return 0, fmt.Errorf("%s is not in %s", n.Value, span(lo, hi))
			}
			return v, nil
		},
		Print: yamldoc.Num,
		Read: func(s string) (int, error) {
			v, err := strconv.ParseFloat(s, 64) // PVE's JSON may send 2 as "2", 2 or 2.0
			if err != nil || v != math.Trunc(v) || math.Abs(v) > 1e15 {
				return 0, fmt.Errorf("%q is not an integer", s)
			}
			return int(v), nil
		},
		Write: strconv.Itoa,
	}
}

// Number is a decimal number in min..max.
func Number(min, max float64) Codec[float64] {
	text := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	return Codec[float64]{
		Type: Type{Name: "number", Min: &min, Max: &max, Examples: []string{text(min)}},
		Parse: func(n *yamldoc.Node) (float64, error) {
			if n.Kind != yamldoc.Scalar || n.Tag != yamldoc.Int && n.Tag != yamldoc.Float {
				return 0, wrongShape(n, "a number in "+span(min, max))
			}
			v, err := strconv.ParseFloat(n.Value, 64)
			if err != nil || math.IsNaN(v) || v < min || v > max {
				return 0, fmt.Errorf("%s is not in %s", n.Value, span(min, max))
			}
			return v, nil
		},
		Print: func(v float64) *yamldoc.Node {
			t := yamldoc.Float
			if v == math.Trunc(v) {
				t = yamldoc.Int
			}
			return &yamldoc.Node{Kind: yamldoc.Scalar, Tag: t, Value: text(v)}
		},
		Read: func(s string) (float64, error) {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return 0, fmt.Errorf("%q is not a number", s)
			}
			return v, nil
		},
		Write: text,
	}
}

// Bool is true or false, 1 and 0 on the wire. PVE's other spellings (yes, on,
// true) are read too (facts.md B).
func Bool() Codec[bool] { return Spoken("1", "0") }

// Spoken is a boolean with its own wire texts.
func Spoken(yes, no string) Codec[bool] {
	return Codec[bool]{
		Type: Type{Name: "boolean", Examples: []string{"true", "false"}},
		Parse: func(n *yamldoc.Node) (bool, error) {
			switch {
			case n.Kind != yamldoc.Scalar:
				return false, wrongShape(n, "true or false")
			case n.Tag == yamldoc.Bool:
				return n.Value == "true", nil
			}
			if n.Tag == yamldoc.String && (n.Value == "true" || n.Value == "false") {
				return false, fmt.Errorf("in quotes it is a text: write %s without quotes", n.Value)
			}
			if b, ok := wire.ParseBool(n.Value); ok {
				return false, fmt.Errorf("%s is not a boolean here: write %t", n.Value, b)
			}
			return false, wrongShape(n, "true or false")
		},
		Print: yamldoc.Boolean,
		Read: func(s string) (bool, error) {
			switch s {
			case yes:
				return true, nil
			case no:
				return false, nil
			}
			b, ok := wire.ParseBool(s)
			if !ok {
				return false, fmt.Errorf("%q is not a boolean", s)
			}
			return b, nil
		},
		Write: func(b bool) string {
			if b {
				return yes
			}
			return no
		},
	}
}

func parseSize(n *yamldoc.Node) (wire.Size, error) {
	if n.Kind != yamldoc.Scalar {
		return 0, wrongShape(n, "a size such as 8GiB")
	}
	if n.Tag == yamldoc.Int || n.Tag == yamldoc.Float {
		return 0, fmt.Errorf("%s has no unit; write a size such as 8GiB or 512MiB", n.Value)
	}
	return wire.ParseSize(n.Value)
}

// MiBSize is a size that PVE keeps as a whole number of MiB. min and max are
// in bytes; max 0 is open.
func MiBSize(min, max wire.Size) Codec[wire.Size] {
	return Codec[wire.Size]{
		Type: Type{Name: "size", Examples: []string{"2GiB"}},
		Parse: func(n *yamldoc.Node) (wire.Size, error) {
			v, err := parseSize(n)
			switch {
			case err != nil:
				return 0, err
			case v%wire.MiB != 0:
				return 0, fmt.Errorf("%s is not a whole number of MiB", n.Value)
			case v < min:
				return 0, fmt.Errorf("%s is below %s", n.Value, min)
			case max > 0 && v > max:
				return 0, fmt.Errorf("%s is above %s", n.Value, max)
			}
			return v, nil
		},
		Print: func(v wire.Size) *yamldoc.Node { return yamldoc.Str(v.String()) },
		Read: func(s string) (wire.Size, error) {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || v != math.Trunc(v) || v < 0 || v > 1<<40 {
				return 0, fmt.Errorf("%q is not a number of MiB", s)
			}
			return wire.Size(v) * wire.MiB, nil
		},
		Write: func(v wire.Size) string { return strconv.FormatInt(int64(v/wire.MiB), 10) },
	}
}

// Bytes is the size of a volume: manifest spelling here, PVE's size= there.
func Bytes() Codec[wire.Size] {
	return Codec[wire.Size]{
		Type: Type{Name: "size", Examples: []string{"32GiB"}},
		Parse: func(n *yamldoc.Node) (wire.Size, error) {
			v, err := parseSize(n)
			if err == nil && v%wire.MiB != 0 {
				return 0, fmt.Errorf("%s is not a whole number of MiB", n.Value)
			}
			return v, err
		},
		Print: func(v wire.Size) *yamldoc.Node { return yamldoc.Str(v.Manifest()) },
		Read:  wire.ReadSize,
		Write: wire.Size.Wire,
	}
}

// Slot is a slot named by number or in full (0 or net0), as its number.
func Slot(prefix string, max int) Codec[int] {
	return Codec[int]{
		Type: Type{Name: "string or integer", Examples: []string{prefix + "0", "0"}},
		Parse: func(n *yamldoc.Node) (int, error) {
			s := n.Value
			if n.Kind == yamldoc.Scalar && n.Tag == yamldoc.String {
				if len(s) > len(prefix) && s[:len(prefix)] == prefix {
					s = s[len(prefix):]
				}
			}
			v, err := strconv.Atoi(s)
			if n.Kind != yamldoc.Scalar || err != nil || v < 0 || v > max || strconv.Itoa(v) != s {
				return 0, wrongShape(n, fmt.Sprintf("a slot: %s0-%s%d or the number alone", prefix, prefix, max))
			}
			return v, nil
		},
		Print: func(v int) *yamldoc.Node { return yamldoc.Str(prefix + strconv.Itoa(v)) },
		Read:  func(s string) (int, error) { return 0, errors.New("a slot is not on the wire") },
		Write: func(v int) string { return prefix + strconv.Itoa(v) },
	}
}
