package kind_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/secret"
	"github.com/proxops/proxops/internal/wire"
	"github.com/proxops/proxops/internal/yamldoc"
)

// model is a guest as PVE keeps it, with PVE's habits: volumes get names,
// NICs get a MAC on every write without one, tags are folded and sorted.
type model struct {
	lxc    bool
	config map[string]string
	macs   int
	disks  int
}

func (m *model) guest(running bool) *field.Guest {
	g := &field.Guest{Exists: true, LXC: m.lxc, Running: running, Config: map[string]field.Entry{}}
	for k, v := range m.config {
		g.Config[k] = field.Entry{Value: &v}
	}
	return g
}

func (m *model) apply(t *testing.T, d field.Delta) {
	t.Helper()
	for _, e := range d.Edits {
		if e.Delete {
			delete(m.config, e.Key)
			continue
		}
		m.set(t, e.Key, e.Value.Reveal())
	}
	for _, g := range d.Grows {
		p := wire.ParseProps(m.config[g.Key], wire.FormatOf(m.lxc, g.Key))
		p.Set("size", g.To.Wire())
		m.config[g.Key] = p.String()
	}
}

func (m *model) set(t *testing.T, key, text string) {
	t.Helper()
	p := wire.ParseProps(text, wire.FormatOf(m.lxc, key))
	switch class := wire.KeyClass(key); {
	case key == "tags":
		text = strings.Join(wire.FoldTags(wire.SplitTags(text), false), ";")
	case class == "net" && class != key:
		token := "macaddr"
		if m.lxc {
			token = "hwaddr"
		}
		if _, ok := p.Get(token); !ok {
			m.macs++
			p.Set(token, fmt.Sprintf("BC:24:11:00:00:%02X", m.macs))
		}
		text = p.String()
	case wire.IsVolumeKey(m.lxc, key):
		text = m.volume(t, key, p)
	}
	m.config[key] = text
}

// volume stores a drive: a create form becomes a named volume, and one over a
// live volume is the fault that this product must never make.
func (m *model) volume(t *testing.T, key string, p wire.Props) string {
	t.Helper()
	first := wire.FirstToken(m.lxc)
	file, _ := p.Get(first)
	if !wire.IsCreateForm(file) {
		return p.String()
	}
	if old, ok := m.config[key]; ok {
		t.Errorf("create form %s=%s over %s", key, p.String(), old)
	}
	storage, amount, _ := wire.SplitVolID(file)
	m.disks++
	switch {
	case amount == "cloudinit":
		p.Set(first, storage+":vm-101-cloudinit")
		p.Set("media", "cdrom")
	case key == "efidisk0", key == "tpmstate0":
		p.Set(first, fmt.Sprintf("%s:vm-101-disk-%d", storage, m.disks))
		p.Set("size", "528K")
	default:
		size, err := wire.ReadSize(amount + "G")
		if err != nil {
			t.Errorf("%s=%s: %v", key, file, err)
		}
		p.Set(first, fmt.Sprintf("%s:vm-101-disk-%d", storage, m.disks))
		p.Set("size", size.Wire())
	}
	p.Del("import-from")
	return p.String()
}

// node is a YAML flow text as a node.
func node(t *testing.T, text string) *yamldoc.Node {
	t.Helper()
	docs, problems := yamldoc.Parse("text", []byte("x: "+text+"\n"))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if len(docs) == 0 || docs[0].Get("x") == nil {
		return &yamldoc.Node{Kind: yamldoc.Null}
	}
	return docs[0].Get("x")
}

// base is a spec of a kind with every block, one element in every list, and
// what is required set.
func base(t *testing.T, k *kind.Kind) kind.Spec {
	t.Helper()
	spec := k.New()
	field.Specimen(func() *field.Block { return spec.Shape(nil) })
	more := map[string]string{
		"disks[0].size": "32GiB", "hardware.cloud-init.storage": "local-lvm", "hardware.tpm.storage": "local-lvm",
		"hardware.pci-devices[0].mapping": "gpu0", "cloud-init-data.ipconfigs[0].ip": "192.0.2.10/24",
		"cloud-init-data.ipconfigs[0].ip6": "auto", "networks[0].ip": "192.0.2.9/24", "networks[0].ip6": `"2001:db8::9/64"`,
		"bind-mounts[0].mount-point": "/srv/bind", "nodes": "[pve01]",
	}
	for _, r := range field.Rows(spec.Shape(nil)) {
		text := more[r.Path]
		if r.Required && text == "" {
			text = r.Type.Examples[0]
		}
		if text == "" {
			continue
		}
		if err := r.Load(node(t, text)); err != nil {
			t.Fatalf("%s: %s: %v", r.Path, text, err)
		}
	}
	bind(t, spec)
	if g, ok := spec.(kind.GuestSpec); ok {
		g.SetDefaultName("specimen")
	}
	return spec
}

func rowAt(spec kind.Spec, live *field.Guest, path string) *field.Row {
	for _, r := range field.Rows(spec.Shape(live)) {
		if r.Path == path {
			return r
		}
	}
	return nil
}

func setRow(t *testing.T, spec kind.Spec, path, text string) {
	t.Helper()
	r := rowAt(spec, nil, path)
	if r == nil {
		t.Fatalf("no row %s", path)
	}
	if err := r.Load(node(t, text)); err != nil {
		t.Fatalf("%s: %s: %v", path, text, err)
	}
	bind(t, spec)
}

// bind resolves a spec's references and secrets.
func bind(t *testing.T, spec kind.Spec) {
	t.Helper()
	for _, ref := range spec.Refs() {
		if err := ref.Bind(target(t, ref.To)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range spec.Secrets() {
		value := "a-password"
		if strings.HasPrefix(s.Ref, kind.KeyRefPrefix) {
			value = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGq8VqFqPU8PSfCsRsE2zRmmwl4eIFDlkIwYgVpzRWlL b"
		}
		if err := s.Bind(secret.New(value)); err != nil {
			t.Fatal(err)
		}
	}
}

// faults are what Validate says.
func faults(spec kind.Spec) []string {
	var out []string
	spec.Validate(func(path, format string, args ...any) {
		out = append(out, path+": "+fmt.Sprintf(format, args...))
	})
	return out
}

// born is the model after creating the guest from the spec.
func born(t *testing.T, k *kind.Kind, spec kind.Spec) *model {
	t.Helper()
	m := &model{lxc: k.Guest == "lxc", config: map[string]string{}}
	params, _ := field.CreateParams(spec.Shape(nil), m.lxc, field.Env{})
	for _, p := range params {
		switch p.Key {
		case "vmid", "ostemplate", "ssh-public-keys", "password": // not reported
		default:
			m.set(t, p.Key, p.Value.Reveal())
		}
	}
	return m
}

func guests() []*kind.Kind {
	var out []*kind.Kind
	for _, k := range kind.All {
		if k.IsGuest() {
			out = append(out, k)
		}
	}
	return out
}

// Every field of every struct has a row: once each row got a value, no field
// is left without one.
func TestLawEveryFieldHasARow(t *testing.T) {
	for _, k := range kind.All {
		spec := base(t, k)
		for _, r := range field.Rows(spec.Shape(nil)) {
			if err := r.Load(node(t, r.Type.Examples[0])); err != nil {
				t.Errorf("%s %s: %v", k.Name, r.Path, err)
			}
		}
		unset(t, k.Name, reflect.ValueOf(spec).Elem())
	}
}

func unset(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if o, ok := v.Interface().(interface{ State() field.State }); ok {
		if o.State() == field.Absent {
			t.Errorf("%s has no row", path)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				unset(t, path+"."+f.Name, v.Field(i))
			}
		}
	case reflect.Pointer:
		unset(t, path, v.Elem())
	case reflect.Slice:
		if v.Len() == 0 && !strings.HasSuffix(path, ".Extra") {
			t.Errorf("%s has no list", path)
		}
		for i := range v.Len() {
			unset(t, path, v.Index(i))
		}
	default:
		t.Errorf("%s is no optional field", path)
	}
}

// compared leaves out rows whose value is no part of a live config.
func compared(r *field.Row) bool {
	return r.Key != "" && !r.CreateOnly && (r.Role == field.RoleToken || r.Role == field.RolePool)
}

// Create from the specimen, then every example of every row, then null: after
// each, one write leaves nothing to write, and no MAC nor volume is lost.
func TestLawApplyConverges(t *testing.T) {
	for _, k := range guests() {
		for _, row := range field.Rows(base(t, k).Shape(nil)) {
			if !compared(row) {
				continue
			}
			values := slices.Clone(row.Type.Examples)
			if len(row.Type.Enum) > 0 {
				values = append(values, row.Type.Enum...)
			}
			if !row.Required {
				values = append(values, "null")
			}
			if row.Path == "bind-mounts[0].mount-point" { // its example is taken by the specimen's mount point
				values = append(values, "/elsewhere")
			}
			tried := 0
			for _, text := range values {
				t.Run(fmt.Sprintf("%s/%s=%.20s", k.Name, row.Path, text), func(t *testing.T) {
					spec := base(t, k)
					m := born(t, k, spec)
					if d := field.Diff(spec.Shape(m.guest(true)), m.guest(true)); !d.Empty() || len(d.Anomalies) > 0 {
						t.Fatalf("created and not converged: %v", show(d))
					}
					kept := keptTokens(m)
					before := len(faults(spec))
					setRow(t, spec, row.Path, text)
					if vm, ok := spec.(*kind.VM); ok && strings.HasSuffix(row.Path, ".device") { // instead of the mapping
						vm.Hardware.PCIDevices[0].Mapping = field.Opt[string]{}
					}
					if len(faults(spec)) > before {
						t.Skip(faults(spec)) // no manifest says so
					}
					tried++
					d := field.Diff(spec.Shape(m.guest(true)), m.guest(true))
					m.apply(t, d)
					again := field.Diff(spec.Shape(m.guest(true)), m.guest(true))
					if !again.Empty() {
						t.Errorf("%s then %s", show(d), show(again))
					}
					if now := keptTokens(m); !slices.Equal(kept, now) && !strings.HasSuffix(row.Path, ".mac") && !strings.HasSuffix(row.Path, ".hwaddr") {
						t.Errorf("MACs and volumes changed from %v to %v", kept, now)
					}
				})
			}
			if tried == 0 {
				t.Errorf("%s: no value of %s was tried", k.Name, row.Path)
			}
		}
	}
}

func keptTokens(m *model) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m.config)) {
		p := wire.ParseProps(m.config[k], wire.FormatOf(m.lxc, k))
		for _, token := range []string{"macaddr", "hwaddr"} {
			if v, ok := p.Get(token); ok {
				out = append(out, v)
			}
		}
		if wire.IsVolumeKey(m.lxc, k) {
			v, _ := p.Get(wire.FirstToken(m.lxc))
			out = append(out, v)
		}
	}
	return out
}

func show(d field.Delta) string {
	var out []string
	for _, e := range d.Edits {
		out = append(out, fmt.Sprintf("%s=%s delete=%t", e.Key, e.Value, e.Delete))
	}
	for _, a := range d.Anomalies {
		out = append(out, "anomaly "+a.Path+": "+a.Text)
	}
	return strings.Join(out, "; ")
}

// Read(Write(v)) is v.
func TestLawReadWrite(t *testing.T) {
	for _, k := range guests() {
		for _, row := range field.Rows(base(t, k).Shape(nil)) {
			readable := compared(row) && !row.Secret && row.Path != "cloud-init-data.ssh-key-refs"
			if !readable {
				continue
			}
			nodes, err := row.Examples()
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				spec := base(t, k)
				r := rowAt(spec, nil, row.Path)
				if err := r.Load(n); err != nil {
					t.Errorf("%s %s: example %q: %v", k.Name, row.Path, n.Value, err)
					continue
				}
				want, shown := "", r.Text()
				want, _ = r.Wanted()
				if err := r.Read(want); err != nil {
					t.Errorf("%s %s: %q does not read back: %v", k.Name, row.Path, want, err)
				} else if got, _ := r.Wanted(); got != want || r.Text() != shown {
					t.Errorf("%s %s: %q (%s) reads back as %q (%s)", k.Name, row.Path, want, shown, got, r.Text())
				}
			}
		}
	}
}

// A row that is absent leaves a live value of its own alone, a value changes
// it, null clears it.
func TestLawThreeStates(t *testing.T) {
	for _, k := range guests() {
		for _, row := range field.Rows(base(t, k).Shape(nil)) {
			if !compared(row) || row.Required || row.Fixed != "" || row.Path == "pve-name" || row.Path == "dns.hostname" {
				continue
			}
			if row.Path == "tags" || row.State() == field.Set { // tags never empties: the owner's stays
				continue
			}
			t.Run(k.Name+"/"+row.Path, func(t *testing.T) {
				text := row.Type.Examples[len(row.Type.Examples)-1]
				set, none := base(t, k), base(t, k)
				before := len(faults(set))
				setRow(t, set, row.Path, text)
				setRow(t, none, row.Path, "null")
				if len(faults(set)) > before || len(faults(none)) > before {
					t.Skip("no manifest says so")
				}
				none = base(t, k)
				m := born(t, k, set)
				live := m.guest(false)
				if d := field.Diff(none.Shape(live), live); !d.Empty() {
					t.Errorf("absent writes: %s", show(d))
				}
				setRow(t, none, row.Path, "null")
				d := field.Diff(none.Shape(live), live)
				_, had := tokenOf(m, row)
				if v, _ := tokenOf(m, row); row.FilledIn != "" && v == row.FilledIn {
					if !d.Empty() {
						t.Errorf("null fights what PVE fills in: %s", show(d))
					}
					return
				}
				m.apply(t, d)
				if v, ok := tokenOf(m, row); ok {
					t.Errorf("null leaves %s", v)
				}
				if had && len(d.Edits) != 1 {
					t.Errorf("null makes %d writes: %s", len(d.Edits), show(d))
				}
				if live = m.guest(false); !field.Diff(none.Shape(live), live).Empty() {
					t.Errorf("null does not settle")
				}
			})
		}
	}
}

// tokenOf is what the model holds of a row: its token, or its key.
func tokenOf(m *model, r *field.Row) (string, bool) {
	text, ok := m.config[r.Key]
	f := wire.FormatOf(m.lxc, r.Key)
	if !ok || f.Plain || r.Token == "" {
		return text, ok
	}
	v, ok := wire.ParseProps(text, f).Get(r.Token)
	if r.Token == "flags" && !strings.Contains(v, strings.Trim(exampleFlag(r), "+-")) {
		return "", false
	}
	return v, ok
}

func exampleFlag(r *field.Row) string {
	if r.Name == "nested-virt" {
		return "nested-virt"
	}
	return "aes"
}
