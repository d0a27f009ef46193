package adopt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Terraform is one guest in a Terraform or OpenTofu state file.
type Terraform struct {
	Address string // such as module.web.proxmox_vm_qemu.app["a"]
	Name    string // what metadata.name is made of: the resource and its index
	Module  string // such as module.web; "" at the root
	VMID    int
}

// terraformTypes are the guest resources of the providers bpg/proxmox and
// Telmate/proxmox, with the attributes that may hold the vmid.
var terraformTypes = map[string][]string{
	"proxmox_virtual_environment_vm":        {"vm_id", "id"},
	"proxmox_virtual_environment_vm2":       {"id", "vm_id"},
	"proxmox_virtual_environment_container": {"vm_id", "id"},
	"proxmox_vm":                            {"vm_id", "id"},
	"proxmox_vm_qemu":                       {"vmid", "id"},
	"proxmox_lxc":                           {"vmid", "id"},
}

const largestState = 256 << 20

// ReadState reads a state file of format 4 and gives its guests in the order
// of their addresses. Nothing else of the file is kept: it is full of secrets.
// No error quotes it.
func ReadState(file string) ([]Terraform, error) {
	st, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, errors.Unwrap(err))
	}
	if st.Size() > largestState {
		return nil, fmt.Errorf("%s: is larger than %d MiB, which no state file is", file, largestState>>20)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, errors.Unwrap(err))
	}
	out, err := parseState(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

type stateFile struct {
	Version   json.RawMessage `json:"version"`
	Encrypted json.RawMessage `json:"encrypted_data"`
	Resources []struct {
		Mode      string `json:"mode"`
		Type      string `json:"type"`
		Name      string `json:"name"`
		Module    string `json:"module"`
		Instances []struct {
			Index      json.RawMessage            `json:"index_key"`
			Deposed    string                     `json:"deposed"`
			Attributes map[string]json.RawMessage `json:"attributes"`
		} `json:"instances"`
	} `json:"resources"`
}

func parseState(data []byte) ([]Terraform, error) {
	var f stateFile
	if err := json.Unmarshal(data, &f); err != nil {
		at := ""
		if s := (*json.SyntaxError)(nil); errors.As(err, &s) {
			at = fmt.Sprintf(" (at byte %d)", s.Offset)
		}
		return nil, fmt.Errorf("is no state file%s: write one with `terraform state pull`", at)
	}
	switch {
	case f.Encrypted != nil:
		return nil, errors.New("is encrypted: write a plain one with `tofu state pull`")
	case string(f.Version) != "4":
		return nil, errors.New("is not of format version 4: write one with `terraform state pull` of Terraform 0.12 or later, or OpenTofu")
	}
	var out []Terraform
	for _, r := range f.Resources {
		keys, known := terraformTypes[r.Type]
		if r.Mode != "managed" || !known || r.Name == "" {
			continue
		}
		for _, i := range r.Instances {
			id := stateID(i.Attributes, keys)
			if id == 0 || i.Deposed != "" {
				continue
			}
			t := Terraform{Address: r.Type + "." + r.Name, Name: r.Name, Module: r.Module, VMID: id}
			if r.Module != "" {
				t.Address = r.Module + "." + t.Address
			}
			if len(i.Index) > 0 && string(i.Index) != "null" {
				t.Address += "[" + string(bytes.TrimSpace(i.Index)) + "]"
				t.Name += "-" + strings.Trim(string(i.Index), `"`)
			}
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Terraform) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.VMID, b.VMID))
	})
	return out, nil
}

// stateID is the first attribute that holds a vmid: a number, its text, or
// Telmate's node/type/number.
func stateID(attributes map[string]json.RawMessage, keys []string) int {
	for _, key := range keys {
		text := strings.Trim(string(attributes[key]), `"`)
		if i := strings.LastIndexByte(text, '/'); i >= 0 {
			text = text[i+1:]
		}
		if id, err := strconv.Atoi(text); err == nil && id > 0 {
			return id
		}
	}
	return 0
}

// ByVMID indexes a state's guests. Two with one vmid are of two clusters, or a
// mistake: which is meant cannot be known, so neither is taken.
func ByVMID(list []Terraform) (byID map[int]Terraform, twice []int) {
	byID = map[int]Terraform{}
	seen := map[int]bool{}
	for _, t := range list {
		if seen[t.VMID] {
			delete(byID, t.VMID)
			twice = append(twice, t.VMID)
			continue
		}
		seen[t.VMID], byID[t.VMID] = true, t
	}
	slices.Sort(twice)
	return byID, slices.Compact(twice)
}
