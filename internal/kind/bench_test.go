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
