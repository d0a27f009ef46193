package repo

import (
	"fmt"
	"strings"
	"testing"
)

// estate is a repository of n VMs with a disk, a NIC and a few options each.
func estate(n int) files {
	f := base()
	var list strings.Builder
	list.WriteString("resources:\n  - iso/base/debian.yaml\n")
	for i := range n {
		name := fmt.Sprintf("vm-%04d", i)
		f["vm/prod/"+name+".yaml"] = fmt.Sprintf(`apiVersion: proxops/v1alpha1
kind: VM
metadata:
  name: %s
  labels: {role: worker}
spec:
  node: pve%d
  vmid: %d
  cpu: {type: host, cores: 4}
  memory: 8GiB
  tags: [web, prod]
  disks:
    - {interface: scsi0, storage: local-lvm, size: 32GiB, discard: "on", iothread: true}
  networks:
    - {slot: net0, bridge: vmbr0, vlan: 20, firewall: true}
  hardware:
    machine: q35
    cloud-init: {enabled: true, storage: local-lvm}
  options: {onboot: true, agent: true}
  cloud-init-data:
    ci-user: ops
    nameservers: [192.0.2.53]
    ipconfigs: [{nic: 0, ip: dhcp}]
`, name, i%2+1, 1000+i)
		fmt.Fprintf(&list, "  - ../../vm/prod/%s.yaml\n", name)
	}
	f["clusters/prod/resources.yaml"] = list.String()
	return f
}

func BenchmarkLoad2000Manifests(b *testing.B) {
	dir := estate(2000).write(b)
	for b.Loop() {
		r := open(b, dir)
		c, err := r.Load(b.Context(), "prod")
		if err != nil {
			b.Fatal(err)
		}
		if len(c.Resources) != 2001 {
			b.Fatalf("%d resources", len(c.Resources))
		}
	}
}

func BenchmarkLoad2000ManifestsOfACommit(b *testing.B) {
	dir := estate(2000).write(b)
	commit(b, dir)
	for b.Loop() {
		r := open(b, dir)
		tree, err := r.tree.At(r.tree.Head.Hash)
		if err != nil {
			b.Fatal(err)
		}
		r.tree = tree
		if _, err := r.Load(b.Context(), "prod"); err != nil {
			b.Fatal(err)
		}
	}
}
