package schema

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Formats of the firewall's parameters.
var (
	aliasRE   = regexp.MustCompile(`^(?:dc/|guest/)?[A-Za-z][A-Za-z0-9\-_]+$`)
	setRE     = regexp.MustCompile(`^\+(?:dc/|guest/|sdn/)?[A-Za-z][A-Za-z0-9\-_]+$`)
	serviceRE = regexp.MustCompile(`^[a-z][a-z0-9\-]*$`)
)

// protocols are the names that /etc/protocols of a node has for what guests speak.
const protocols = "ip icmp igmp ggp ipencap st tcp egp igp pup udp hmp xns-idp rdp iso-tp4 dccp xtp ddp idpr-cmtp ipv6 ipv6-route ipv6-frag idrp rsvp " +
	"gre esp ah skip ipv6-icmp icmpv6 ipv6-nonxt ipv6-opts rspf vmtp eigrp ospf ax.25 ipip etherip encap pim ipcomp vrrp l2tp isis sctp fc mobility-header " +
	"udplite mpls-in-ip manet hip shim6 wesp rohc"

func firewallProtocol(s string) bool {
	if s == "" { // takes a rule's protocol away
		return true
	}
	if n, err := strconv.Atoi(s); err == nil {
		return n >= 0 && n <= 255
	}
	return contains(strings.Fields(protocols), s)
}

// firewallPorts admits ports, ranges of them and names of services, between commas.
func firewallPorts(s string) bool {
	if s == "" {
		return true
	}
	for p := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(p, ":")
		if !isRange {
			if _, digits := port(p); !digits && !serviceRE.MatchString(p) || digits && !isPort(p) {
				return false
			}
			continue
		}
		a, _ := port(from)
		b, _ := port(to)
		if !isPort(from) || !isPort(to) || a >= b {
			return false
		}
	}
	return true
}

func port(s string) (n int, digits bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func isPort(s string) bool {
	n, ok := port(s)
	return ok && n >= 0 && n <= 65535
}

// firewallAddresses admits a set, an alias, a range, or a list of addresses and networks.
func firewallAddresses(s string) bool {
	if s == "" || setRE.MatchString(s) || aliasRE.MatchString(s) {
		return true
	}
	if from, to, isRange := strings.Cut(s, "-"); isRange {
		a, err := netip.ParseAddr(from)
		b, err2 := netip.ParseAddr(to)
		return err == nil && err2 == nil && a.Is4() == b.Is4() && a.Less(b)
	}
	for p := range strings.SplitSeq(s, ",") {
		if _, err := netip.ParsePrefix(p); err != nil && !isIP(p) {
			return false
		}
	}
	return true
}
