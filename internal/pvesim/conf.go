package pvesim

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim/schema"
)

// PVE's own files: nodes/NODE/qemu-server/N.conf and nodes/NODE/lxc/N.conf. The parsers here read them as PVE's do: what does not fit
// is warned about and skipped, never refused.

var (
	confSection  = regexp.MustCompile(`(?i)^\[([a-z][a-z0-9_-]+)\]\s*$`)
	confPending  = regexp.MustCompile(`(?i)^\[(?:PENDING|pve:pending)\]\s*$`)
	confSpecial  = regexp.MustCompile(`(?i)^\[special:cloudinit\]\s*$`)
	confLine     = regexp.MustCompile(`^([a-z][a-z_-]*\d*):\s*(.+?)\s*$`)
	confText     = regexp.MustCompile(`^description:\s*(.*\S)\s*$`)
	confState    = regexp.MustCompile(`^snapstate:\s*(prepare|delete)\s*$`)
	confDelete   = regexp.MustCompile(`^delete:\s*(.*\S)\s*$`)
	confRaw      = regexp.MustCompile(`^(lxc\.[a-z0-9_.-]+)(?::|\s*=)\s*(.*?)\s*$`)
	confRawWords = regexp.MustCompile(`^lxc\.(?:cgroup2?|prlimit|sysctl|proc)\.`)
)

// confReader reads one config file.
type confReader struct {
	g        *Guest
	warnings []string
	// section is where keys go now; snap is its snapshot, nil outside of one.
	section Section
	snap    *Snapshot
	pending bool
	// verbatim is set in sections whose keys are kept as they are.
	verbatim bool
	text     strings.Builder
	hasText  bool
}

// ParseConf reads one of PVE's config files of a VM (kind qemu) or a container (kind lxc) as PVE's parser would: the section with
// its description, what is pending, the snapshots, raw lxc lines. What PVE would warn about and leave out is returned as warnings.
func ParseConf(kind string, vmid int, text string) (*Guest, []string) {
	g := &Guest{VMID: vmid, Kind: kind}
	g.complete()
	r := &confReader{g: g, section: g.Config}
	for line := range strings.SplitSeq(text, "\n") {
		r.line(line)
	}
	r.finish()
	return g, r.warnings
}

func (r *confReader) warnf(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf("%s %d - ", strings.ToLower(kindName(r.g.Kind)), r.g.VMID)+fmt.Sprintf(format, args...))
}

// finish ends a section: its comment lines are its description. VMs lose white space at the end; containers keep all but the last
// line feed, which the API puts back.
func (r *confReader) finish() {
	text := r.text.String()
	r.text.Reset()
	if r.g.Kind == kindLXC {
		text = strings.TrimSuffix(text, "\n")
	} else {
		text = strings.TrimRight(text, " \t\r\n\f\v")
	}
	if r.hasText && text != "" {
		if r.snap != nil {
			r.snap.Description = text
		} else if !r.pending && !r.verbatim {
			r.section["description"] = text
		}
	}
	r.hasText = false
}

func (r *confReader) line(line string) {
	switch m := confSection.FindStringSubmatch(line); {
	case strings.TrimSpace(line) == "":
		return
	case confPending.MatchString(line) && (r.g.Kind == kindQemu) == strings.Contains(strings.ToUpper(line), "[PENDING]"):
		r.finish()
		r.section, r.snap, r.pending, r.verbatim = r.g.Pending, nil, true, false
		return
	case confSpecial.MatchString(line) && r.g.Kind == kindQemu:
		r.finish()
		r.g.CloudInit = Section{}
		r.section, r.snap, r.pending, r.verbatim = r.g.CloudInit, nil, false, true
		return
	case m != nil:
		r.finish()
		r.begin(m[1])
		return
	}
	if text, ok := strings.CutPrefix(line, "#"); ok {
		r.hasText = true
		r.text.WriteString(decodeText(text) + "\n")
		return
	}
	if r.g.Kind == kindLXC {
		if m := confRaw.FindStringSubmatch(line); m != nil {
			r.raw(m[1], m[2])
			return
		}
	}
	r.setting(line)
}

// begin starts a snapshot's section; a second one of the same name replaces the first.
func (r *confReader) begin(name string) {
	s := &Snapshot{Name: name, Config: Section{}}
	r.section, r.snap, r.pending, r.verbatim = s.Config, s, false, false
	for i, old := range r.g.Snapshots {
		if old.Name == name {
			r.g.Snapshots[i] = s
			return
		}
	}
	r.g.Snapshots = append(r.g.Snapshots, s)
}

// raw keeps a line of LXC's own configuration; keys that PVE does not let through are warned about.
func (r *confReader) raw(key, value string) {
	if !confRawWords.MatchString(key) && !rawKey(key) {
		r.warnf("unable to parse config: %s: %s", key, value)
		return
	}
	line := key + ": " + value
	if r.snap != nil {
		r.snap.Raw = append(r.snap.Raw, line)
	} else if !r.pending {
		r.g.Raw = append(r.g.Raw, line)
	}
}

// rawKey says whether PVE lets a raw line through.
func rawKey(key string) bool {
	for _, k := range []string{
		"lxc.apparmor", "lxc.arch", "lxc.autodev", "lxc.cap", "lxc.console", "lxc.devttydir", "lxc.environment", "lxc.ephemeral", "lxc.execute", "lxc.group",
		"lxc.haltsignal", "lxc.hook", "lxc.id_map", "lxc.idmap", "lxc.include", "lxc.init", "lxc.kmsg", "lxc.log", "lxc.loglevel", "lxc.logfile", "lxc.monitor",
		"lxc.mount", "lxc.namespace", "lxc.no_new_privs", "lxc.pivotdir", "lxc.pts", "lxc.pty", "lxc.rebootsignal", "lxc.se_context", "lxc.seccomp",
		"lxc.selinux", "lxc.signal", "lxc.start", "lxc.stopsignal", "lxc.tty", "lxc.uts",
	} {
		if key == k || strings.HasPrefix(key, k+".") {
			return true
		}
	}
	return false
}

func (r *confReader) setting(line string) {
	if m := confText.FindStringSubmatch(line); m != nil {
		r.hasText = true
		r.text.WriteString(decodeText(m[1]))
		return
	}
	if m := confState.FindStringSubmatch(line); m != nil {
		if r.snap != nil {
			r.snap.State = m[1]
		}
		return
	}
	if m := confDelete.FindStringSubmatch(line); m != nil {
		if !r.pending {
			r.warnf("property 'delete' is only allowed in [PENDING]")
			return
		}
		for _, k := range splitList(m[1]) {
			k, force := strings.CutPrefix(k, "!")
			r.g.Delete[k] = force
		}
		return
	}
	m := confLine.FindStringSubmatch(line)
	if m == nil {
		r.warnf("unable to parse config: %s", line)
		return
	}
	r.value(m[1], m[2])
}

// value enters a key. VMs lose keys whose value does not pass the check; containers keep them.
func (r *confReader) value(key, v string) {
	if r.verbatim {
		r.section[key] = v
		return
	}
	if r.snap != nil && r.ofSnapshot(key, v) {
		return
	}
	checked, fault := confValue(r.g.Kind, key, v)
	if fault != "" {
		r.warnf("unable to parse value of '%s' - %s", key, fault)
		if r.g.Kind == kindQemu {
			return
		}
		checked = v
	}
	if r.g.Kind == kindQemu && key == "cdrom" {
		key = "ide2"
	}
	if r.g.Kind == kindQemu && isDrive(key) && !strings.HasPrefix(key, "efidisk") && !strings.HasPrefix(key, "tpmstate") {
		d, ok := parseDrive(key, checked)
		if !ok {
			r.warnf("unable to parse value of '%s'", key)
			return
		}
		checked = d.text()
	}
	r.section[key] = checked
}

// ofSnapshot takes the keys that the state keeps apart.
func (r *confReader) ofSnapshot(key, v string) bool {
	switch key {
	case "parent":
		r.snap.Parent = v
	case "vmstate":
		r.snap.VMState = v
	case "snaptime":
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return false
		}
		r.snap.Time = time.Unix(n, 0)
	default:
		return false
	}
	return true
}

var confNumber = regexp.MustCompile(`^\d+(\.\d+)?$`)

// confValue is check_type: the value as it is kept, or why it is none.
func confValue(kind, key, v string) (value, fault string) {
	if internalKey(kind, key) {
		return v, ""
	}
	m := qemuConfigMethod()
	if kind == kindLXC {
		m = lxcConfigMethod()
	}
	p, ok := m.Key(key)
	if !ok || kind == kindQemu && key != "cdrom" && !qemuKey(key) || kind == kindLXC && !ctOption(key) {
		return "", "unknown setting '" + key + "'"
	}
	switch p.Type {
	case schema.Boolean:
		switch strings.ToLower(v) {
		case "1", "on", "yes", "true":
			return "1", ""
		case "0", "off", "no", "false":
			return "0", ""
		}
		return "", "type check ('boolean') failed - got '" + v + "'"
	case schema.Integer:
		n, err := strconv.ParseUint(v, 10, 63)
		if err != nil {
			return "", "type check ('integer') failed - got '" + v + "'"
		}
		return strconv.FormatUint(n, 10), ""
	case schema.Number:
		if !confNumber.MatchString(v) {
			return "", "type check ('number') failed - got '" + v + "'"
		}
		return v, ""
	}
	if p.Format == nil && p.FormatName == "" {
		if len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' {
			v = v[1 : len(v)-1]
		}
		return v, ""
	}
	if v == " " { // the blank that stands for an empty value
		return v, ""
	}
	if p.Format != nil {
		if _, err := p.Format.Parse(key, v); err != nil {
			return "", strings.TrimSpace(err.Error())
		}
		return v, ""
	}
	if err := schema.CheckFormat(p.FormatName, v); err != nil {
		return "", strings.TrimSpace(err.Error())
	}
	return v, ""
}

// internalKey says whether a key stands in config files although no call sets it.
func internalKey(kind, key string) bool {
	switch key {
	case "parent", "snaptime", "lock", "template":
		return true
	case "vmstate", "runningmachine", "runningcpu", "running-nets-host-mtu", "meta":
		return kind == kindQemu
	}
	return false
}

// Conf prints a guest's config file as PVE writes it: ParseConf gives the same guest back.
func (g *Guest) Conf() string {
	var b strings.Builder
	g.printSection(&b, g.Config, g.Raw)
	if len(g.Pending) > 0 || len(g.Delete) > 0 {
		name := "PENDING"
		if g.Kind == kindLXC {
			name = "pve:pending"
		}
		fmt.Fprintf(&b, "\n[%s]\n", name)
		p := g.Pending.Clone()
		var gone []string
		for _, k := range sortedKeys(g.Delete) {
			if g.Delete[k] {
				k = "!" + k
			}
			gone = append(gone, k)
		}
		if len(gone) > 0 {
			p["delete"] = strings.Join(gone, ",")
		}
		g.printSection(&b, p, nil)
	}
	if g.CloudInit != nil && g.Kind == kindQemu {
		b.WriteString("\n[special:cloudinit]\n")
		g.printSection(&b, g.CloudInit, nil)
	}
	for _, s := range g.Snapshots {
		fmt.Fprintf(&b, "\n[%s]\n", s.Name)
		g.printSection(&b, s.section(), s.Raw)
	}
	return b.String()
}

func (g *Guest) printSection(b *strings.Builder, s Section, raw []string) {
	if d := s["description"]; d != "" {
		for line := range strings.SplitSeq(d, "\n") {
			b.WriteString("#" + encodeText(line) + "\n")
		}
	}
	for _, k := range s.Keys() {
		if k != "description" {
			fmt.Fprintf(b, "%s: %s\n", k, s[k])
		}
	}
	for _, line := range raw {
		b.WriteString(line + "\n")
	}
}

// encodeText is PVE::Tools::encode_text: colons, percent signs, control characters and all beyond ASCII are percent-encoded.
func encodeText(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' || c == ':' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// decodeText undoes encodeText; text that was written by hand and is UTF-8 already stays.
func decodeText(s string) string { return schema.PercentDecode(s) }
