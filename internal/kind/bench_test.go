package kind_test

import (
	"testing"

	"github.com/proxops/proxops/internal/field"
	"github.com/proxops/proxops/internal/kind"
)

// A cycle shapes every spec several times, so a shape must stay cheap.
func BenchmarkShape(b *testing.B) {
	for _, k := range kind.All {
		b.Run(k.Name, func(b *testing.B) {
			spec := k.New()
			field.Specimen(func() *field.Block { return spec.Shape(nil) })
			b.ReportAllocs()
			for b.Loop() {
				field.Rows(spec.Shape(nil))
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	text := doc("VM", "web-01", vmHead+"disks: [{storage: local-lvm, size: 32GiB, discard: on, ssd: true}]\nnetworks: [{bridge: vmbr0, vlan: 10}]\noptions: {onboot: true, agent: true}\ncloud-init-data: {ci-user: ops, ipconfigs: [{nic: 0, ip: dhcp}]}\nhardware: {cloud-init: {storage: local-lvm}}")
	b.ReportAllocs()
	for b.Loop() {
		if _, problems := parse(text); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}
