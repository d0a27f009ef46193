package wire

import (
	"regexp"
	"slices"
	"strings"
)

// Format says how PVE cuts the text of one key.
type Format struct {
	Plain   bool              // not a property string: the text is one value
	Default string            // the token that may stand without its name
	Net     bool              // a VM's NIC: <model>=<mac> is two tokens
	Aliases map[string]string // other names of tokens, such as volume for file
}

// netModels are the NIC models that may stand as the name of a token whose
// value is the MAC address.
var netModels = []string{
	"e1000", "e1000-82540em", "e1000-82544gc", "e1000-82545em", "e1000e", "i82551", "i82557b",
	"i82559er", "ne2k_isa", "ne2k_pci", "pcnet", "rtl8139", "virtio", "vmxnet3",
}

// NetModels lists the NIC models of PVE 9.2.
func NetModels() []string { return slices.Clone(netModels) }

var indexed = regexp.MustCompile(`^([a-z]+)[0-9]+$`)

// KeyClass is a key without its index: scsi3 is scsi, efidisk0 is efidisk.
// Keys without index are themselves.
func KeyClass(key string) string {
	if m := indexed.FindStringSubmatch(key); m != nil {
		return m[1]
	}
	return key
}

var driveAliases = map[string]string{"volume": "file"}

// FormatOf is the format of a key of PVE 9.2's guest configuration; keys that
// are no property string, and unknown ones, are plain.
func FormatOf(lxc bool, key string) Format {
	if lxc {
		switch KeyClass(key) {
		case "rootfs", "mp", "unused":
			return Format{Default: "volume"}
		case "dev":
			return Format{Default: "path"}
		case "net", "features":
			return Format{}
		case "startup":
			return Format{Default: "order"}
		}
		return Format{Plain: true}
	}
	switch KeyClass(key) {
	case "ide", "sata", "scsi", "virtio", "efidisk", "tpmstate", "unused", "cdrom":
		return Format{Default: "file", Aliases: driveAliases}
	case "net":
		return Format{Default: "model", Net: true}
	case "cpu":
		return Format{Default: "cputype"}
	case "memory":
		return Format{Default: "current"}
	case "machine", "vga", "amd-sev", "intel-tdx":
		return Format{Default: "type"}
	case "agent":
		return Format{Default: "enabled"}
	case "boot":
		return Format{Default: "legacy"}
	case "hostpci", "usb":
		return Format{Default: "host"}
	case "virtiofs":
		return Format{Default: "dirid"}
	case "watchdog":
		return Format{Default: "model"}
	case "rng":
		return Format{Default: "source"}
	case "startup":
		return Format{Default: "order"}
	case "ipconfig", "audio", "cicustom", "ivshmem", "numa", "smbios", "smbios1", "spice_enhancements":
		if key == "numa" {
			break
		}
		return Format{}
	}
	return Format{Plain: true}
}

// Token is one token of a property string.
type Token struct{ Key, Value string }

// segment is the text between two commas.
type segment struct {
	raw  string
	key  string // canonical; "" for what is no token (an empty segment)
	val  string
	pair bool // <model>=<mac>: key is "model", val the model, mac the rest
	mac  string
}

// Props is a property string that can be changed by token. Everything that
// nobody changed keeps its bytes: unknown tokens, spellings, double commas.
type Props struct {
	format   Format
	text     string
	segments []segment
	changed  bool
}

// ParseProps cuts a text. Any text parses.
func ParseProps(text string, f Format) Props {
	p := Props{format: f, text: text}
	if text == "" {
		return p
	}
	if f.Plain {
		p.segments = []segment{{raw: text, val: text}}
		return p
	}
	for _, raw := range strings.Split(text, ",") {
		p.segments = append(p.segments, f.segment(raw))
	}
	return p
}

func (f Format) segment(raw string) segment {
	trimmed := strings.TrimSpace(raw)
	k, v, named := strings.Cut(trimmed, "=")
	switch {
	case trimmed == "":
		return segment{raw: raw}
	case !named && f.Default == "":
		return segment{raw: raw, key: trimmed}
	case !named:
		return segment{raw: raw, key: f.Default, val: trimmed}
	case f.Net && slices.Contains(netModels, k):
		return segment{raw: raw, key: "model", val: k, pair: true, mac: v}
	}
	if a, ok := f.Aliases[k]; ok {
		k = a
	}
	return segment{raw: raw, key: k, val: v}
}

// String is the text; the original, byte for byte, when nothing changed.
func (p Props) String() string {
	if !p.changed {
		return p.text
	}
	raws := make([]string, 0, len(p.segments))
	for _, s := range p.segments {
		raws = append(raws, s.raw)
	}
	return strings.Join(raws, ",")
}

// Get is the value of a token; "" names the text of a plain key.
func (p Props) Get(token string) (string, bool) {
	for _, s := range p.segments {
		switch {
		case p.format.Plain:
			return s.val, token == ""
		case s.pair && token == "macaddr":
			return s.mac, true
		case s.key != "" && s.key == token:
			return s.val, true
		}
	}
	return "", false
}

// Tokens lists the tokens in the order of the text.
func (p Props) Tokens() []Token {
	var out []Token
	for _, s := range p.segments {
		switch {
		case p.format.Plain:
			out = append(out, Token{"", s.val})
		case s.pair:
			out = append(out, Token{"model", s.val}, Token{"macaddr", s.mac})
		case s.key != "":
			out = append(out, Token{s.key, s.val})
		}
	}
	return out
}

// Empty reports whether no token is left.
func (p Props) Empty() bool { return len(p.Tokens()) == 0 }

// Set gives token a value. A new default token goes to the front without its
// name, other new ones to the end.
func (p *Props) Set(token, value string) {
	if old, ok := p.Get(token); ok && old == value {
		return
	}
	p.touch()
	if p.format.Plain {
		p.segments = []segment{{raw: value, val: value}}
		return
	}
	if p.format.Net && p.setNet(token, value) {
		return
	}
	raw := token + "=" + value
	for i, s := range p.segments {
		if s.key != token {
			continue
		}
		if !strings.Contains(s.raw, "=") && !strings.Contains(value, "=") {
			raw = value // keep the short spelling
		} else if k, _, ok := strings.Cut(s.raw, "="); ok {
			raw = k + "=" + value // keep an alias
		}
		p.segments[i] = segment{raw: raw, key: token, val: value}
		return
	}
	if token == p.format.Default {
		if !strings.Contains(value, "=") {
			raw = value
		}
		p.segments = slices.Insert(p.segments, 0, segment{raw: raw, key: token, val: value})
		return
	}
	p.segments = append(p.segments, segment{raw: raw, key: token, val: value})
}

// setNet keeps a NIC's model and address in PVE's one token <model>=<mac>.
func (p *Props) setNet(token, value string) bool {
	if token != "model" && token != "macaddr" {
		return false
	}
	i := slices.IndexFunc(p.segments, func(s segment) bool { return s.key == "model" })
	if i < 0 {
		return false
	}
	s := p.segments[i]
	switch {
	case token == "model" && s.pair:
		p.segments[i] = segment{raw: value + "=" + s.mac, key: "model", val: value, pair: true, mac: s.mac}
	case token == "macaddr":
		p.segments = slices.DeleteFunc(p.segments, func(s segment) bool { return s.key == "macaddr" })
		i = slices.IndexFunc(p.segments, func(s segment) bool { return s.key == "model" })
		p.segments[i] = segment{raw: s.val + "=" + value, key: "model", val: s.val, pair: true, mac: value}
	default:
		return false
	}
	return true
}

// Del removes a token.
func (p *Props) Del(token string) {
	if _, ok := p.Get(token); !ok {
		return
	}
	p.touch()
	if p.format.Plain {
		p.segments = nil
		return
	}
	var left []segment
	for _, s := range p.segments {
		switch {
		case s.pair && token == "macaddr":
			left = append(left, segment{raw: s.val, key: "model", val: s.val})
		case s.pair && token == "model":
			left = append(left, segment{raw: "macaddr=" + s.mac, key: "macaddr", val: s.mac})
		case s.key == "" || s.key != token:
			left = append(left, s)
		}
	}
	p.segments = left
}

// touch makes the segments p's own, so that a copy of p is never changed.
func (p *Props) touch() {
	p.changed = true
	p.segments = slices.Clone(p.segments)
}

// Same reports whether two texts hold the same tokens, in any order.
func (p Props) Same(q Props) bool {
	sorted := func(ts []Token) []Token {
		slices.SortFunc(ts, func(a, b Token) int {
			return strings.Compare(a.Key+"\x00"+a.Value, b.Key+"\x00"+b.Value)
		})
		return slices.Compact(ts)
	}
	return slices.Equal(sorted(p.Tokens()), sorted(q.Tokens()))
}
