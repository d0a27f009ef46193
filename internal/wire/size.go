package wire

// Size is a size in bytes.
type Size int64

// The binary units PVE and manifests use.
const (
	KiB Size = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)
