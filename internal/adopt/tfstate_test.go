package adopt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/adopt"
)

const state = `{"version": 4, "terraform_version": "1.9.5", "serial": 3, "lineage": "x", "outputs": {"p": {"value": "hunter2"}},
"resources": [
 {"mode": "managed", "type": "proxmox_virtual_environment_vm", "name": "Front_End", "provider": "provider[\"registry.terraform.io/bpg/proxmox\"]",
  "instances": [{"schema_version": 0, "attributes": {"id": "100", "vm_id": 100, "name": "Web.Example.Org", "initialization": [{"user_account": [{"password": "hunter2"}]}]}}]},
 {"module": "module.mail[\"eu\"]", "mode": "managed", "type": "proxmox_virtual_environment_container", "name": "box",
  "instances": [{"index_key": "a", "attributes": {"vm_id": 110}}]},
 {"mode": "managed", "type": "proxmox_vm_qemu", "name": "web", "instances": [{"index_key": 0, "attributes": {"vmid": 0, "id": "pve01/qemu/102"}}, {"index_key": 1, "attributes": {"vmid": 9999}},
   {"index_key": 2, "deposed": "abc", "attributes": {"vmid": 101}}]},
 {"mode": "managed", "type": "proxmox_lxc", "name": "tpl", "instances": [{"attributes": {"vmid": 111, "hostname": "tpl"}}]},
 {"mode": "data", "type": "proxmox_virtual_environment_vm", "name": "ignored", "instances": [{"attributes": {"vm_id": 104}}]},
 {"mode": "managed", "type": "proxmox_vm_qemu", "instances": [{"attributes": {"vmid": 104}}]},
 {"mode": "managed", "type": "null_resource", "name": "x", "instances": [{"attributes": {"vm_id": 104}}]}
]}`

func stateFile(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "terraform.tfstate")
	if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// Guests keep the names that Terraform gave them.
func TestFromTerraform(t *testing.T) {
	list, err := adopt.ReadState(stateFile(t, state))
	if err != nil {
		t.Fatal(err)
	}
	byID, twice := adopt.ByVMID(list)
	if len(list) != 5 || len(byID) != 5 || len(twice) > 0 {
		t.Fatalf("%d guests, %d by vmid, twice %v", len(list), len(byID), twice)
	}
	e := oddEstate(t)
	res, _ := e.proof(adopt.Options{Terraform: byID})
	for id, want := range map[string]struct{ file, address string }{
		"100": {"vm/lab/front-end.yaml", "proxmox_virtual_environment_vm.Front_End"},
		"102": {"vm/lab/web-0.yaml", "proxmox_vm_qemu.web[0]"},
		"110": {"lxc/lab/box-a.yaml", `module.mail["eu"].proxmox_virtual_environment_container.box["a"]`},
		"111": {"templatect/lab/tpl.yaml", "proxmox_lxc.tpl"},
		"101": {"vm/lab/vm-101.yaml", ""},
		"104": {"vm/lab/web-example-org-100.yaml", ""},
	} {
		if m := manifest(t, res, id); m.File != want.file || m.Terraform != want.address {
			t.Errorf("%s: %s, %s; want %+v", id, m.File, m.Terraform, want)
		}
	}
	wants(t, manifest(t, res, "100"), "pve-name: Web.Example.Org", "in Terraform proxmox_virtual_environment_vm.Front_End")
	wants(t, manifest(t, res, "110"), `terraform-module: "module.mail[\"eu\"]"`, "hostname: mail")
}

func TestBadState(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"not JSON":  {`{"version": 4, hunter2`, "is no state file (at byte"},
		"wrong":     {`["hunter2"]`, "is no state file"},
		"old":       {`{"version": 3, "modules": [{"x": "hunter2"}]}`, "not of format version 4"},
		"empty":     {`{}`, "not of format version 4"},
		"encrypted": {`{"encrypted_data": "hunter2", "version": 4}`, "is encrypted"},
		"odd types": {`{"version": 4, "resources": [{"mode": "hunter2", "instances": "hunter2"}]}`, "is no state file"},
	} {
		file := stateFile(t, c.text)
		_, err := adopt.ReadState(file)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), file) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := adopt.ReadState(filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "none: no such file") {
		t.Errorf("no file: %v", err)
	}
	_, twice := adopt.ByVMID([]adopt.Terraform{{VMID: 1, Name: "a"}, {VMID: 1, Name: "b"}, {VMID: 1, Name: "c"}, {VMID: 2}})
	if len(twice) != 1 || twice[0] != 1 {
		t.Errorf("twice %v", twice)
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte(state))
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "s")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := adopt.ReadState(file)
		for _, x := range list {
			if err != nil || x.VMID < 1 {
				t.Errorf("%+v, %v", x, err)
			}
		}
	})
}
