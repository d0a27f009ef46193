package wire

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Size is a size in bytes.
type Size int64

// The binary units PVE and manifests use.
const (
	KiB Size = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

// Slack is how far a live volume may lie above the wanted size and still equal
// it: storages round up to extents, 4 MiB on LVM by default (facts.md E).
const Slack = 4 * MiB

// maxSize bounds what is read, far above any volume and far below overflow.
const maxSize = 1 << 60

var unitOf = map[string]Size{
	"K": KiB, "M": MiB, "G": GiB, "T": TiB,
	"KiB": KiB, "MiB": MiB, "GiB": GiB, "TiB": TiB,
}

var (
	manifestSize = regexp.MustCompile(`^([0-9]{1,19}) ?([A-Za-z]*)$`)
	pveSize      = regexp.MustCompile(`^([0-9]{1,19}(?:\.[0-9]{1,19})?)([KMGT]?)$`)
)

// ParseSize reads a manifest's size: a whole number and a binary unit, KiB to
// TiB or K to T. A number without a unit is refused, for PVE counts memory in
// MiB and disks in GiB and a reader cannot tell which was meant.
func ParseSize(s string) (Size, error) {
	m := manifestSize.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size: a whole number and KiB, MiB, GiB or TiB, such as 8GiB", s)
	}
	unit, ok := unitOf[m[2]]
	switch {
	case m[2] == "":
		return 0, fmt.Errorf("%s has no unit; write a size such as 8GiB or 512MiB", s)
	case !ok:
		return 0, fmt.Errorf("%q: unit %s is not one of K, M, G, T, KiB, MiB, GiB, TiB", s, m[2])
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || n > int64(maxSize/unit) {
		return 0, fmt.Errorf("%q is too large", s)
	}
	if n == 0 {
		return 0, fmt.Errorf("%q: a size is above zero", s)
	}
	return Size(n) * unit, nil
}

// ReadSize reads PVE's size= spelling: 32G, 528K, 0.5G or plain bytes. PVE
// reads fractions and rounds them up to a whole byte.
func ReadSize(s string) (Size, error) {
	m := pveSize.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size of PVE", s)
	}
	unit := Size(1)
	if m[2] != "" {
		unit = unitOf[m[2]]
	}
	if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
		if n > int64(maxSize/unit) {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return Size(n) * unit, nil
	}
	f, err := strconv.ParseFloat(m[1], 64)
	if err != nil || f*float64(unit) > float64(maxSize) {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return Size(math.Ceil(f * float64(unit))), nil
}

// unit is the largest unit that divides s.
func (s Size) unit() (Size, string) {
	for _, u := range []struct {
		size Size
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if s != 0 && s%u.size == 0 {
			return u.size, u.name
		}
	}
	return 1, "B"
}

// String is the size for people, exact: 8GiB, 2252MiB, 2700000001B.
func (s Size) String() string {
	u, name := s.unit()
	return strconv.FormatInt(int64(s/u), 10) + name
}

// Manifest is the size as a manifest can say it: whole MiB. What is over is
// cut off, which Slack makes equal to the live size; less than one MiB, as the
// firmware's disks have, becomes one.
func (s Size) Manifest() string {
	if s > 0 {
		s = max(s-s%MiB, MiB)
	}
	return s.String()
}

// Wire is PVE's size= spelling, exact: 8G, 2252M, 104858K, 2700000001.
func (s Size) Wire() string {
	u, name := s.unit()
	return strconv.FormatInt(int64(s/u), 10) + strings.TrimSuffix(strings.TrimSuffix(name, "iB"), "B")
}

// GiBNumber is the size in GiB as the create form wants it, never with an
// exponent: 32, 0.5, 0.09765625.
func (s Size) GiBNumber() string {
	return strconv.FormatFloat(float64(s)/float64(GiB), 'f', -1, 64)
}

// Covers reports whether a live volume of size live satisfies the wanted s.
func (s Size) Covers(live Size) bool { return live >= s && live-s <= Slack }
