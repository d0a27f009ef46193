package pvesim

import (
	"crypto/sha1" //nolint:gosec // PVE's digest is SHA-1
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// Firewall is a guest's part of the firewall: the file firewall/VMID.fw. The simulator keeps it and filters nothing.
type Firewall struct {
	Options map[string]string
	// Rules are by position, each with its parameters.
	Rules   []map[string]string
	Aliases map[string]*FirewallEntry
	Sets    map[string]*FirewallSet
}

// FirewallEntry is an alias, or an address in an IP set.
type FirewallEntry struct {
	CIDR    string
	Comment string
	NoMatch bool
}

// FirewallSet is a named set of addresses, by address.
type FirewallSet struct {
	Comment string
	Entries map[string]*FirewallEntry
}

func firewallRoutes() []route {
	var out []route
	for _, kind := range []string{kindQemu, kindLXC} {
		fw := "/nodes/{node}/" + kind + "/{vmid}/firewall"
		out = append(out,
			route{"GET", fw + "/options", (*World).firewallOptions}, route{"PUT", fw + "/options", (*World).firewallSetOptions},
			route{"GET", fw + "/rules", (*World).firewallRules}, route{"POST", fw + "/rules", (*World).firewallAddRule},
			route{"GET", fw + "/rules/{pos}", (*World).firewallRule}, route{"PUT", fw + "/rules/{pos}", (*World).firewallSetRule},
			route{"DELETE", fw + "/rules/{pos}", (*World).firewallDropRule},
			route{"GET", fw + "/aliases", (*World).firewallAliases}, route{"POST", fw + "/aliases", (*World).firewallAddAlias},
			route{"GET", fw + "/aliases/{name}", (*World).firewallAlias}, route{"PUT", fw + "/aliases/{name}", (*World).firewallSetAlias},
			route{"DELETE", fw + "/aliases/{name}", (*World).firewallDropAlias},
			route{"GET", fw + "/ipset", (*World).firewallSets}, route{"POST", fw + "/ipset", (*World).firewallAddSet},
			route{"GET", fw + "/ipset/{name}", (*World).firewallSet}, route{"POST", fw + "/ipset/{name}", (*World).firewallAddIP},
			route{"DELETE", fw + "/ipset/{name}", (*World).firewallDropSet},
			route{"GET", fw + "/ipset/{name}/{cidr}", (*World).firewallIP}, route{"PUT", fw + "/ipset/{name}/{cidr}", (*World).firewallSetIP},
			route{"DELETE", fw + "/ipset/{name}/{cidr}", (*World).firewallDropIP},
			route{"GET", fw + "/refs", (*World).firewallRefs}, route{"GET", fw + "/log", (*World).firewallLog})
	}
	return out
}

// firewall is what a guest has; PVE does not ask whether there is such a guest.
func (w *World) firewall(vmid int) *Firewall {
	if f := w.Firewalls[vmid]; f != nil {
		return f
	}
	return &Firewall{}
}

// firewallEdit finds what is to be changed, unless the digest that the caller knows is of something else.
func (r *Request) firewallEdit(of func(*Firewall) any) (*Firewall, error) {
	w := r.w
	f := w.firewall(r.VMID)
	if d := r.P.Str("digest"); d != "" && of != nil && d != firewallDigest(of(f)) {
		return nil, die("detected modified configuration - file changed by other user? Try again.")
	}
	if w.Firewalls == nil {
		w.Firewalls = map[int]*Firewall{}
	}
	if w.Firewalls[r.VMID] = f; f.Options == nil {
		f.Options, f.Aliases, f.Sets = map[string]string{}, map[string]*FirewallEntry{}, map[string]*FirewallSet{}
	}
	return f, nil
}

func firewallDigest(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	h := sha1.Sum(b) //nolint:gosec // see above
	return hex.EncodeToString(h[:])
}

func firewallOptionsOf(f *Firewall) any { return f.Options }
func firewallRulesOf(f *Firewall) any   { return f.Rules }
func firewallAliasesOf(f *Firewall) any { return f.Aliases }

func (w *World) firewallOptions(r *Request) (any, error) {
	f := w.firewall(r.VMID)
	out := map[string]any{"digest": firewallDigest(f.Options)}
	for k, v := range f.Options {
		out[k] = apiValue(k, v, schema.Lookup("PUT", r.M.Path))
	}
	return out, nil
}

func (w *World) firewallSetOptions(r *Request) (any, error) {
	f, err := r.firewallEdit(firewallOptionsOf)
	if err != nil {
		return nil, err
	}
	for _, k := range r.P.List("delete") {
		if _, known := r.M.Key(k); !known || slices.Contains([]string{"node", "vmid", "digest", "delete"}, k) {
			return nil, paramErr("delete", "no such option '%s'", k)
		}
		delete(f.Options, k)
	}
	for _, k := range r.P.Keys() {
		if !slices.Contains([]string{"node", "vmid", "digest", "delete"}, k) {
			f.Options[k] = r.P.Str(k)
		}
	}
	return nil, nil
}

// ruleRow is a rule as it is answered; the address family follows from its addresses.
func ruleRow(f *Firewall, pos int) map[string]any {
	out := map[string]any{"pos": pos, "digest": firewallDigest(f.Rules)}
	for k, v := range f.Rules[pos] {
		out[k] = v
		if k == "enable" {
			out[k] = number(v)
		}
	}
	for _, k := range []string{"source", "dest"} {
		if n := ipVersion(f.Rules[pos][k]); n != 0 {
			out["ipversion"] = n
		}
	}
	return out
}

// ipVersion is the family of the first address of a list, 0 for none.
func ipVersion(list string) int {
	first, _, _ := strings.Cut(list, ",")
	first, _, _ = strings.Cut(first, "-")
	first, _, _ = strings.Cut(first, "/")
	a, err := netip.ParseAddr(first)
	switch {
	case err != nil:
		return 0
	case a.Is4():
		return 4
	}
	return 6
}

func (w *World) firewallRules(r *Request) (any, error) {
	f := w.firewall(r.VMID)
	out := []map[string]any{}
	for i := range f.Rules {
		out = append(out, ruleRow(f, i))
	}
	return out, nil
}

// rulePos is the position that a path names.
func (r *Request) rulePos(f *Firewall) (int, error) {
	pos := r.P.Int("pos", 0)
	if pos >= len(f.Rules) {
		return 0, die("no rule at position %d", pos)
	}
	return pos, nil
}

func (w *World) firewallRule(r *Request) (any, error) {
	f := w.firewall(r.VMID)
	pos, err := r.rulePos(f)
	if err != nil {
		return nil, err
	}
	return ruleRow(f, pos), nil
}

func ruleKeys() []string {
	return []string{"type", "action", "enable", "macro", "iface", "source", "dest", "proto", "sport", "dport", "log", "comment", "icmp-type"}
}

// copyRule is copy_rule_data: what is given replaces, what is empty goes.
func copyRule(rule map[string]string, p Params) {
	for _, k := range ruleKeys() {
		if !p.Has(k) {
			continue
		}
		if v := p.Str(k); v == "" {
			delete(rule, k)
		} else {
			rule[k] = v
		}
	}
}

// checkRule is verify_rule for the rules of a guest.
func (w *World) checkRule(f *Firewall, rule map[string]string) error {
	errs := map[string]string{}
	switch rule["type"] {
	case "in", "out":
		if a := strings.ToUpper(rule["action"]); a != "ACCEPT" && a != "DROP" && a != "REJECT" {
			errs["action"] = "unknown action '" + rule["action"] + "'"
		}
	case "forward":
		errs["type"] = "forward rules are not allowed here"
	case "group":
		errs["action"] = "security group '" + rule["action"] + "' does not exist" // the simulated cluster has none
	}
	if i := rule["iface"]; i != "" && (!indexed(i, "net") || number(i[3:]) > 31) {
		errs["iface"] = "value does not look like a valid interface name: net0 to net31"
	}
	for _, k := range []string{"sport", "dport"} {
		if rule[k] != "" && rule["proto"] == "" && rule["macro"] == "" {
			errs["proto"] = "missing property - '" + k + "' requires this property"
		}
	}
	for _, k := range []string{"source", "dest"} {
		v := rule[k]
		switch set, isSet := strings.CutPrefix(v, "+"); {
		case isSet && f.Sets[strings.TrimPrefix(set, "guest/")] == nil:
			errs[k] = "no such ipset '" + set + "'"
		case !isSet && v != "" && ipVersion(v) == 0 && f.Aliases[strings.TrimPrefix(v, "guest/")] == nil:
			errs[k] = "no such alias '" + v + "'"
		}
	}
	if a, b := ipVersion(rule["source"]), ipVersion(rule["dest"]); a != 0 && b != 0 && a != b {
		errs["dest"] = "detected mixed ipv4/ipv6 addresses in rule"
	}
	if len(errs) > 0 {
		return paramErrs(errs)
	}
	return nil
}

func (w *World) firewallAddRule(r *Request) (any, error) {
	f, err := r.firewallEdit(firewallRulesOf)
	if err != nil {
		return nil, err
	}
	rule := map[string]string{"enable": "0"}
	copyRule(rule, r.P)
	if err := w.checkRule(f, rule); err != nil {
		return nil, err
	}
	f.Rules = slices.Insert(f.Rules, 0, rule) // whatever position is asked for
	return nil, nil
}

func (w *World) firewallSetRule(r *Request) (any, error) {
	f, err := r.firewallEdit(firewallRulesOf)
	if err != nil {
		return nil, err
	}
	pos, err := r.rulePos(f)
	if err != nil {
		return nil, err
	}
	rule := f.Rules[pos]
	if r.P.Has("moveto") {
		to := min(r.P.Int("moveto", 0), len(f.Rules))
		f.Rules = slices.Insert(f.Rules, to, rule)
		if to <= pos {
			pos++
		}
		f.Rules = slices.Delete(f.Rules, pos, pos+1)
		return nil, nil
	}
	next := map[string]string{}
	for k, v := range rule {
		next[k] = v
	}
	copyRule(next, r.P)
	for _, k := range r.P.List("delete") {
		if !slices.Contains(ruleKeys(), k) {
			return nil, paramErr("delete", "no such option '%s'", k)
		}
		delete(next, k)
	}
	if err := w.checkRule(f, next); err != nil {
		return nil, err
	}
	f.Rules[pos] = next
	return nil, nil
}

func (w *World) firewallDropRule(r *Request) (any, error) {
	f, err := r.firewallEdit(firewallRulesOf)
	if err != nil {
		return nil, err
	}
	pos, err := r.rulePos(f)
	if err != nil {
		return nil, err
	}
	f.Rules = slices.Delete(f.Rules, pos, pos+1)
	return nil, nil
}

// firewallLog has the one line that a firewall which never ran leaves.
func (w *World) firewallLog(*Request) (any, error) {
	return Reply{Data: []map[string]any{{"n": 1, "t": "no content"}}, Extra: map[string]any{"total": 0}}, nil
}

// removeFirewall forgets a guest's firewall with the guest; copyFirewall gives a clone its own.
func (w *World) removeFirewall(vmid int) { delete(w.Firewalls, vmid) }

func (w *World) copyFirewall(from, to int) error {
	f := w.Firewalls[from]
	if f == nil {
		return nil
	}
	b, err := json.Marshal(f)
	if err != nil {
		return die("clone firewall config of %d: %s", from, err.Error())
	}
	c := &Firewall{}
	if err := json.Unmarshal(b, c); err != nil {
		return die("clone firewall config of %d: %s", from, err.Error())
	}
	w.Firewalls[to] = c
	return nil
}
