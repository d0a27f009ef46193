package field

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// MAC is a unicast hardware address. PVE keeps the case it was sent, so it is
// compared without case (facts.md C).
func MAC() Codec[string] {
	const hex = `[0-9a-fA-F]{2}`
	c := Fold(TextMatching(hex+`(:`+hex+`){5}`, "a MAC address such as BC:24:11:00:00:01", "BC:24:11:00:00:01"))
	parse := c.Parse
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := parse(n)
		if err == nil && strings.ContainsRune("13579bdfBDF", rune(s[1])) {
			err = fmt.Errorf("%s is a multicast address; the second digit must be even", s)
		}
		return s, err
	}
	return c
}

// Address is an IP address, of family 4, 6 or (0) either; words are further
// values that are allowed, such as "dhcp".
func Address(family int, words ...string) Codec[string] { return ip(family, false, words) }

// CIDR is an IP address with its prefix length.
func CIDR(family int, words ...string) Codec[string] { return ip(family, true, words) }

func ip(family int, prefix bool, words []string) Codec[string] {
	eg := map[int]string{0: "192.0.2.10", 4: "192.0.2.10", 6: `"2001:db8::10"`}[family]
	if prefix {
		eg = map[int]string{0: "192.0.2.10/24", 4: "192.0.2.10/24", 6: `"2001:db8::10/64"`}[family]
	}
	what := map[int]string{0: "an IP address", 4: "an IPv4 address", 6: "an IPv6 address"}[family]
	if prefix {
		what += " with a prefix length, such as " + strings.Trim(eg, `"`)
	}
	for _, w := range words {
		what += ", or " + w
	}
	norm := func(s string) (string, bool) {
		for _, w := range words {
			if s == w {
				return s, true
			}
		}
		if prefix {
			p, err := netip.ParsePrefix(s)
			return p.String(), err == nil && fits(p.Addr(), family)
		}
		a, err := netip.ParseAddr(s)
		return a.String(), err == nil && a.Zone() == "" && fits(a, family)
	}
	c := Text()
	c.Type.Examples = append([]string{eg}, words...)
	c.Parse = func(n *yamldoc.Node) (string, error) {
		s, err := text(n)
		if err != nil {
			return s, err
		}
		if _, ok := norm(s); !ok {
			return s, fmt.Errorf("%q is not %s", s, what)
		}
		return s, nil
	}
	c.Equal = func(want, live string, _ Env) bool {
		a, okA := norm(want)
		b, okB := norm(live)
		return want == live || okA && okB && a == b
	}
	return c
}

func fits(a netip.Addr, family int) bool {
	return family == 0 || a.Is4() == (family == 4)
}

// PropText is a property string written as text, compared by token: order and
// the name of the default token are no difference.
func PropText(f wire.Format, check func(p wire.Props) error, examples ...string) Codec[string] {
	c := Text()
	c.Type.Examples = examples
	c.Parse = func(n *yamldoc.Node) (string, error) {
		if n.Kind == yamldoc.Scalar && n.Tag == yamldoc.Int {
			return n.Value, check(wire.ParseProps(n.Value, f))
		}
		s, err := text(n)
		if err != nil {
			return s, err
		}
		return s, check(wire.ParseProps(s, f))
	}
	c.Equal = func(want, live string, _ Env) bool {
		return wire.ParseProps(want, f).Same(wire.ParseProps(live, f))
	}
	return c
}

// Startup is [order=]N[,up=N][,down=N].
func Startup() Codec[string] {
	f := wire.Format{Default: "order"}
	return PropText(f, func(p wire.Props) error {
		for _, t := range p.Tokens() {
			switch t.Key {
			case "order", "up", "down":
				if !wire.Digits(t.Value) {
					return fmt.Errorf("%s: %q is not a number", t.Key, t.Value)
				}
			default:
				return fmt.Errorf("%q is not one of order, up, down", t.Key)
			}
		}
		if len(p.Tokens()) == 0 {
			return errors.New("startup names none of order, up, down")
		}
		return nil
	}, "order=10", `"order=10,up=30,down=60"`)
}
