package kind

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/GehirnInc/crypt/sha512_crypt"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/secret"
)

// CloudInitData is the block cloud-init-data of a VM. On a clone an absent key
// counts as null, so that a template's identity never leaks.
type CloudInitData struct {
	User          field.Opt[string]
	SSHKeys       field.Opt[[]string]
	SSHKeyRefs    field.Opt[[]string]
	PasswordRef   field.Opt[string]
	Nameservers   field.Opt[[]string]
	SearchDomains field.Opt[[]string]
	IPConfigs     []IPConfig

	keys     resolved
	password passwordText
}

// IPConfig is one element of cloud-init-data.ipconfigs.
type IPConfig struct {
	NIC      field.Opt[int]
	IP       field.Opt[string]
	Gateway  field.Opt[string]
	IP6      field.Opt[string]
	Gateway6 field.Opt[string]
}

// resolved are the keys that ssh-key-refs name, in their order.
type resolved struct{ byRef map[string][]string }

func (r *resolved) set(ref string, keys []string) {
	if r.byRef == nil {
		r.byRef = map[string][]string{}
	}
	r.byRef[ref] = keys
}

func (r *resolved) of(refs []string) []string {
	var out []string
	for _, ref := range refs {
		out = append(out, r.byRef[ref]...)
	}
	return out
}

// passwordText is a resolved password. Its hash is made on first use, for it
// takes milliseconds, and once, so that two reads of it are equal.
type passwordText struct {
	clear secret.Text
	hash  func() string
}

func (p *passwordText) bind(t secret.Text) error {
	s := t.Reveal()
	switch {
	case s == "":
		return errors.New("the entry is empty; a password is needed")
	case strings.ContainsAny(s, "\r\n"):
		return errors.New("the entry holds a line break, which a password may not")
	case strings.Trim(s, "*") == "":
		return errors.New("the entry is asterisks alone, PVE's mask of a password; store the password itself")
	}
	p.clear = t
	p.hash = sync.OnceValue(func() string { return cryptHash(s) })
	return nil
}

// text is what PVE gets. PVE hashes what an update sends but stores what a
// create sends in clear (facts.md A xiv), so it is hashed before sending;
// Windows' cloudbase-init needs it in clear.
func (p *passwordText) text(windows bool) string {
	if p.hash == nil {
		return ""
	}
	if windows {
		return p.clear.Reveal()
	}
	return p.hash()
}

// cryptHash is sha512-crypt with a random salt; a text that is such a hash
// already stays, as PVE keeps it.
func cryptHash(s string) string {
	if strings.HasPrefix(s, "$6$") || strings.HasPrefix(s, "$5$") {
		return s
	}
	hash, err := sha512_crypt.New().Generate([]byte(s), nil)
	if err != nil { // only a malformed salt fails, and the salt is the library's own
		return ""
	}
	return hash
}

// keepKeys is the sentinel of ssh-keys that leaves the live keys alone.
const keepKeys = "*"

func (c *CloudInitData) keepsKeys() bool { return slices.Contains(c.SSHKeys.Or(nil), keepKeys) }

func (c *CloudInitData) shape(v *VM, live *field.Guest) *field.Block {
	clone := v.Clone.IsSet()
	identity := func(r *field.Row) *field.Row {
		if clone {
			r.CloudIdentity()
		}
		return r
	}
	return field.Group("cloud-init-data", "What cloud-init sets up in the guest. The guest reads changes at its next boot. On a clone, keys left out here are cleared.",
		identity(field.Var(&c.User, "ci-user", "ciuser", "", emptyAbsent(userName),
			"User that cloud-init makes or configures.")),
		c.keysRow(clone), c.refsRow(),
		identity(field.Var(&c.PasswordRef, "ci-password-ref", "cipassword", "", c.passwordCodec(v, live),
			"Entry "+PasswordRefPrefix+"<name> of the cluster's SOPS document. The password is sent, hashed, at create and clone, later only where the VM has none; a live one is never compared.").
			Hides().IfAbsent()),
		identity(field.Var(&c.Nameservers, "nameservers", "nameserver", "", emptyAbsent(addressList),
			"DNS servers, IP addresses, compared as a set.")),
		identity(field.Var(&c.SearchDomains, "search-domains", "searchdomain", "", emptyAbsent(domainList),
			"DNS search domains, compared as a set.")),
		field.ListOf(&c.IPConfigs, "ipconfigs", "Addresses, one element a network card.", func(i int, p *IPConfig) *field.Block {
			return p.shape(i)
		}),
	)
}

func userCodec() field.Codec[string] {
	return field.TextMatching(`[^\s:,]+`, "a user name without blanks, colons and commas", "deploy")
}

// keysRow is off the wire while it holds the sentinel.
func (c *CloudInitData) keysRow(clone bool) *field.Row {
	key := "sshkeys"
	if c.keepsKeys() {
		key = ""
	}
	r := field.Var(&c.SSHKeys, "ssh-keys", key, "", emptyAbsent(encodedKeys),
		`Public keys of the user, one an item, compared as a set. ["*"] leaves the live keys alone. Not together with ssh-key-refs.`)
	if clone && key != "" && c.SSHKeyRefs.State() == field.Absent {
		r.CloudIdentity()
	}
	return r
}

func (c *CloudInitData) refsRow() *field.Row {
	codec, keys := emptyAbsent(keyEntries), encodedKeys
	codec.Write = func(refs []string) string { return keys.Write(c.keys.of(refs)) }
	codec.Equal = func(refs []string, live string, env field.Env) bool { return keys.Equal(c.keys.of(refs), live, env) }
	codec.Read = func(string) ([]string, error) {
		return nil, errors.New("live keys do not tell which entries of the SOPS document they are")
	}
	return field.Var(&c.SSHKeyRefs, "ssh-key-refs", "sshkeys", "", codec,
		"Entries "+KeyRefPrefix+"<name> of the cluster's SOPS document that hold the public keys, in order. Not together with ssh-keys.").NoAdopt().HidesWire()
}

// refList is a list of dot paths below prefix.
func refList(prefix string) field.Codec[[]string] {
	item := secretRefCodec(prefix)
	return field.Strings(field.ListOptions{
		Sep: "\n", Ordered: true, Example: "[" + prefix + "ops]",
		Check: func(s string) error {
			return item(s)
		},
	})
}

// secretRefCodec checks one reference.
func secretRefCodec(prefix string) func(string) error {
	re := fullMatch(secretRef(prefix))
	return func(s string) error {
		if !re.MatchString(s) {
			name := s[strings.LastIndexByte(s, '.')+1:]
			if !re.MatchString(prefix + name) {
				name = "ops"
			}
			return fmt.Errorf("%q is not a reference %s<name>, such as %s", s, prefix, prefix+name)
		}
		return nil
	}
}

func passwordRef() field.Codec[string] {
	return field.TextMatching(secretRef(PasswordRefPrefix), "a reference "+PasswordRefPrefix+"<name>", PasswordRefPrefix+"ops")
}

func (c *CloudInitData) passwordCodec(v *VM, live *field.Guest) field.Codec[string] {
	codec := emptyAbsent(passwordEntry)
	codec.Write = func(string) string { return c.password.text(v.windows(live)) }
	codec.Read = func(string) (string, error) {
		return "", errors.New("PVE masks the password")
	}
	codec.Equal = func(_, live string, _ field.Env) bool { return live != "" }
	return codec
}

// addresses is a list of IP addresses.
func addresses() field.Codec[[]string] {
	return field.Strings(field.ListOptions{
		Sep: " ", Cut: " ,;\t\n", Comma: true, Example: "[192.0.2.53, 192.0.2.54]",
		Check: func(s string) error {
			if _, err := netip.ParseAddr(s); err != nil {
				return fmt.Errorf("%q is not an IP address", s)
			}
			return nil
		},
		Norm: func(s string) string {
			if a, err := netip.ParseAddr(s); err == nil {
				return a.String()
			}
			return s
		},
	})
}

var dnsName = fullMatch(dnsPattern)

// domains is a list of DNS names.
func domains() field.Codec[[]string] {
	return field.Strings(field.ListOptions{
		Sep: " ", Cut: " ,;\t\n", Comma: true, Fold: true, Example: "[example.com, lab.example.com]",
		Check: func(s string) error {
			if !dnsName.MatchString(s) {
				return fmt.Errorf("%q is not a DNS name", s)
			}
			return nil
		},
	})
}

// gatewayOf is a gateway's field, or a null where the address that it needs is
// cleared: PVE refuses a gateway alone.
func gatewayOf(ip, gateway *field.Opt[string]) *field.Opt[string] {
	if ip.State() == field.Null && gateway.State() == field.Absent {
		none := field.Cleared[string]()
		return &none
	}
	return gateway
}

func (p *IPConfig) shape(i int) *field.Block {
	key := fmt.Sprintf("ipconfig%d", p.NIC.Or(i))
	return field.Group("", "Addresses of one card.",
		field.Var(&p.NIC, "nic", "", "", ipConfigSlot,
			"Card that the addresses are for, by the number of its slot, 0-31 (or net0-net31). Left out it is the position in the list.").Is(field.RoleSlot).Eg("0", "net0"),
		field.Var(&p.IP, "ip", key, "ip", ipv4,
			"IPv4 address with prefix length, or dhcp."),
		field.Var(gatewayOf(&p.IP, &p.Gateway), "gateway", key, "gw", gateway4,
			"IPv4 gateway; needs ip."),
		field.Var(&p.IP6, "ip6", key, "ip6", ipv6,
			"IPv6 address with prefix length, dhcp, or auto (SLAAC)."),
		field.Var(gatewayOf(&p.IP6, &p.Gateway6), "gateway6", key, "gw6", gateway6,
			"IPv6 gateway; needs ip6."),
	)
}

// inherited are identity keys of a clone that no field of it declares.
func (v *VM) inherited(live *field.Guest) []field.Node {
	if !v.Clone.IsSet() || live == nil {
		return nil
	}
	var out []field.Node
	if !slices.ContainsFunc(v.Extra, func(e field.MapEntry[string]) bool { return e.Key == "cicustom" }) {
		out = append(out, field.ClearOnClone("cicustom", "cloud-init files inherited from the template"))
	}
	declared := map[int]bool{}
	for i := range v.CloudInit.IPConfigs {
		declared[v.CloudInit.IPConfigs[i].NIC.Or(i)] = true
	}
	for n := range maxIPConfig + 1 {
		key := fmt.Sprintf("ipconfig%d", n)
		if _, has := live.Get(key); has && !declared[n] {
			out = append(out, field.ClearOnClone(key, "addresses inherited from the template"))
		}
	}
	return out
}

// normalise takes empty values of cloud-init-data for absent fields.
func (c *CloudInitData) normalise() {
	dropEmpty(&c.User, func(s string) bool { return s == "" })
	dropEmpty(&c.PasswordRef, func(s string) bool { return s == "" })
	for _, l := range []*field.Opt[[]string]{&c.SSHKeys, &c.SSHKeyRefs, &c.Nameservers, &c.SearchDomains} {
		dropEmpty(l, func(ss []string) bool { return len(ss) == 0 })
	}
}

func dropEmpty[V any](o *field.Opt[V], empty func(V) bool) {
	if v, ok := o.Get(); ok && empty(v) {
		*o = field.Opt[V]{}
	}
}

// secretRefs lists the references of a list and of a password field.
func secretRefs(path string, keyRefs field.Opt[[]string], keys *resolved, passRef field.Opt[string], pass *passwordText, keyField, passField string) []SecretReference {
	var out []SecretReference
	for i, ref := range keyRefs.Or(nil) {
		out = append(out, SecretReference{Path: fmt.Sprintf("%s.%s[%d]", path, keyField, i), Ref: ref, Bind: func(t secret.Text) error {
			lines, err := PublicKeys(t)
			if err != nil {
				return fmt.Errorf("%s: %w", ref, err)
			}
			keys.set(ref, lines)
			return nil
		}})
	}
	if ref, ok := passRef.Get(); ok {
		out = append(out, SecretReference{Path: path + "." + passField, Ref: ref, Bind: pass.bind})
	}
	return out
}

// normalise is called after loading.
func (v *VM) normalise() { v.CloudInit.normalise() }
