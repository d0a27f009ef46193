package kind_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
	"github.com/proxops/proxops/internal/pvesim/schema"
	"github.com/proxops/proxops/internal/yamldoc"
)

// methods are PVE's calls that take what a kind's rows write: the first at
// create, the second later ("" = never).
func methods(k *kind.Kind) (create, update *schema.Method) {
	switch k.Guest {
	case "qemu":
		return schema.Lookup("POST", "/nodes/{node}/qemu"), schema.Lookup("PUT", "/nodes/{node}/qemu/{vmid}/config")
	case "lxc":
		return schema.Lookup("POST", "/nodes/{node}/lxc"), schema.Lookup("PUT", "/nodes/{node}/lxc/{vmid}/config")
	}
	return schema.Lookup("POST", "/nodes/{node}/storage/{storage}/download-url"), nil
}

// Every key and token of every row is one that PVE has, and PVE's type, range,
// enum and format admit everything that the row can send.
func TestLawKeysArePVEs(t *testing.T) {
	for _, k := range kind.All {
		spec := base(t, k)
		admits, err := field.Admits(spec.Shape(nil))
		if err != nil {
			t.Fatal(err)
		}
		create, update := methods(k)
		for _, a := range admits {
			for _, m := range []*schema.Method{create, update} {
				if m == nil || m == update && (a.CreateOnly || a.Key == "pool" || a.Key == "unprivileged") {
					continue
				}
				join(t, k, a, m)
			}
		}
	}
}

func join(t *testing.T, k *kind.Kind, a field.Admit, m *schema.Method) {
	t.Helper()
	p, ok := m.Key(a.Key)
	if !ok {
		t.Errorf("%s %s: PVE has no %s in %s %s", k.Name, a.Path, a.Key, m.HTTP, m.Path)
		return
	}
	if a.Token != "" && p.Format != nil {
		if p, ok = p.Format.Key(a.Token); !ok {
			t.Errorf("%s %s: PVE has no token %s in %s", k.Name, a.Path, a.Token, a.Key)
			return
		}
	}
	for _, text := range slices.Concat(a.Enum, a.Examples) {
		if text == "" || a.Path == "template" || a.Path == "hardware.cdrom.iso" && text == ",media=cdrom" {
			continue // bound later
		}
		if fault := p.Fault(a.Key, text); fault != "" {
			t.Errorf("%s %s: PVE refuses %q: %s", k.Name, a.Path, text, fault)
		}
	}
	if a.Type.Name != "integer" && a.Type.Name != "number" {
		return
	}
	for _, limit := range []*float64{a.Type.Min, a.Type.Max} {
		if limit == nil {
			continue
		}
		text := strconv.FormatFloat(*limit, 'f', -1, 64)
		if fault := p.Fault(a.Key, text); fault != "" {
			t.Errorf("%s %s: the range admits %s, PVE says %s", k.Name, a.Path, text, fault)
		}
	}
}

// PVE's documented default is what the row says it is.
func TestLawDefaultsArePVEs(t *testing.T) {
	for _, k := range guests() {
		_, update := methods(k)
		for _, r := range field.Rows(base(t, k).Shape(nil)) {
			if !r.HasDefault {
				continue
			}
			p, ok := update.Key(r.Key)
			if ok && r.Token != "" && p.Format != nil {
				p, ok = p.Format.Key(r.Token)
			}
			switch {
			case !ok && r.Key == "unprivileged":
			case !ok:
				t.Errorf("%s %s: no %s in PVE", k.Name, r.Path, r.Key)
			case r.Path == "options.hotplug" && sameSet(p.Default, r.Default), r.Path == "hardware.machine": // PVE documents no chipset; qemu's is pc
			case p.Default != r.Default:
				t.Errorf("%s %s: default %q, PVE says %q", k.Name, r.Path, r.Default, p.Default)
			}
		}
	}
}

func sameSet(a, b string) bool {
	x, y := schema.SplitList(a), schema.SplitList(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// What a valid manifest creates, PVE's validation takes.
func TestLawCreateIsAccepted(t *testing.T) {
	for _, k := range guests() {
		create, _ := methods(k)
		for _, row := range field.Rows(base(t, k).Shape(nil)) {
			spec := base(t, k)
			if r := rowAt(spec, nil, row.Path); r.Key != "" {
				setRow(t, spec, row.Path, row.Type.Examples[0])
			}
			params, _ := field.CreateParams(spec.Shape(nil), k.Guest == "lxc", field.Env{})
			given := map[string]any{}
			for _, p := range params {
				if text := p.Value.Reveal(); text != "" {
					given[p.Key] = text
				}
			}
			if k.Guest == "lxc" {
				given["ostemplate"] = "local:vztmpl/x.tar.zst"
			}
			if row.Path == "hardware.pci-devices[0].device" {
				delete(given, "hostpci0") // beside the specimen's mapping
			}
			if _, errs := create.Check(map[string]string{"node": "pve01"}, given); len(errs) > 0 {
				t.Errorf("%s with %s: PVE refuses %v", k.Name, row.Path, errs)
			}
		}
	}
}

// Every CPU type and machine that PVE names is one that a manifest may name,
// in any case.
func TestCPUTypesArePVEs(t *testing.T) {
	_, update := methods(guests()[0])
	p, _ := update.Key("cpu")
	models, _ := p.Format.Key("reported-model")
	spec := base(t, guests()[0])
	row := rowAt(spec, nil, "cpu.type")
	for _, m := range append(slices.Clone(models.Enum), "x86-64-v2-AES", "custom-mine") {
		if err := row.Load(yamldoc.Str(strings.ToLower(m))); err != nil {
			t.Errorf("%s: %v", m, err)
		} else if sent, _ := row.Wanted(); sent != m {
			t.Errorf("%s is sent as %s", m, sent)
		}
	}
}
